"""From an engine request to the body of a llama.cpp completion; refuses what llama.cpp cannot do."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.grammar import to_gbnf
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary

_SEEDS = 2**32 - 1
"""llama.cpp's seeds are 32 bits wide, and the highest means: random."""
_UNFINISHED = 3
"""A UTF-8 character may need so many tokens past the limit until llama.cpp tells those before it."""
_SAMPLERS = ("penalties", "temperature", "min_p", "top_k", "top_p")
"""In vLLM's order: the temperature first, so that top_p means OpenAI's."""


class Completion(Struct, frozen=True):
    """A request as llama.cpp shall have it, and how many tokens it may generate."""

    body: dict[str, Any]
    prompt: list[int]
    sampling: Sampling
    limit: int

    def opening(self) -> tuple[dict[str, Any], int] | None:
        """The body of the part that generates `min_tokens` without an end, and their number; None: there is no such part."""
        number = min(self.sampling.min_tokens or 0, self.limit)
        if number == 0:
            return None
        bias = [
            *self.body.get("logit_bias", ()),
            *((token, False) for token in self.sampling.stop_token_ids),
        ]
        return self._part([], number) | {"ignore_eos": True, "logit_bias": bias}, number

    def rest(self, generated: list[int]) -> dict[str, Any]:
        """The body of what follows `generated`."""
        return self._part(generated, self.limit - len(generated))

    def _part(self, generated: list[int], number: int) -> dict[str, Any]:
        return self.body | {"prompt": self.prompt + generated, "n_predict": number + _UNFINISHED}


class CompletionBuilder:
    """Builds completions for one loaded model."""

    def __init__(
        self,
        config: LlamaCppConfig,
        vocabulary: Vocabulary,
        tokenizer: LlamaCppTokenizer,
        max_model_len: int,
    ) -> None:
        self._config = config
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len

    def build(self, request: EngineRequest) -> Completion:
        """The completion for `request`. Raises `InvalidRequest` or `Unsupported`, naming the parameter."""
        if not isinstance(request.prompt, TokensPrompt):
            raise Unsupported(
                "llamacpp takes prompts as token ids, not as messages.", param="input"
            )
        adapter = self._adapter(request.adapter)
        if request.multi_modal:
            raise Unsupported("llamacpp takes text alone.", param="input")
        prompt = list(request.prompt.token_ids)
        self._check_prompt(prompt)
        sampling = request.sampling
        limit = self._limit(sampling, len(prompt))
        body = self._sampling(sampling, request)
        if self._config.lora_modules:
            body["lora"] = adapter
        if request.constraint is not None:
            if sampling.min_tokens:
                raise Unsupported(
                    "llamacpp cannot hold min_tokens and a constrained output at once.",
                    param="min_tokens",
                )
            body["grammar"] = to_gbnf(request.constraint)
        return Completion(body, prompt, sampling, limit)

    def _adapter(self, name: str | None) -> list[dict[str, Any]]:
        """What is applied: a request that names one adapter has none of the others."""
        names = list(self._config.lora_modules)
        if name is None:
            return [{"id": index, "scale": 0.0} for index in range(len(names))]
        if name not in names:
            raise InvalidRequest(
                f"There is no adapter '{name}'; known: {', '.join(names) or 'none'}.",
                param="model",
                code="model_not_found",
            )
        return [{"id": names.index(name), "scale": 1.0}]

    def _check_prompt(self, prompt: list[int]) -> None:
        if not prompt:
            raise InvalidRequest("The prompt is empty.", param="input")
        if min(prompt) < 0 or max(prompt) >= len(self._vocabulary):
            raise InvalidRequest(
                f"The prompt has a token id outside of the vocabulary (0 to {len(self._vocabulary) - 1}).",
                param="input",
            )
        if len(prompt) >= self._max_model_len:
            raise InvalidRequest(
                f"This model's maximum context length is {self._max_model_len} tokens, but the prompt alone has "
                f"{len(prompt)}. Shorten the input.",
                param="input",
                code="context_length_exceeded",
            )

    def _limit(self, sampling: Sampling, prompt: int) -> int:
        room = self._max_model_len - prompt
        if sampling.max_tokens is None:
            return room
        if sampling.max_tokens < 1:
            raise InvalidRequest("max_tokens must be at least 1.", param="max_tokens")
        return min(sampling.max_tokens, room)

    def _sampling(self, sampling: Sampling, request: EngineRequest) -> dict[str, Any]:
        if sampling.prompt_logprobs is not None:
            raise Unsupported(
                "llamacpp gives no log probabilities of the prompt.", param="prompt_logprobs"
            )
        self._check_ranges(sampling)
        seed = sampling.seed if sampling.seed is not None else self._config.seed
        cache = self._config.cache_prompt and seed is None and request.cache_salt is None
        body: dict[str, Any] = {
            "stream": True,
            "verbose": True,
            "return_progress": True,
            "cache_prompt": cache,
            "samplers": _SAMPLERS,
            "temperature": _or(sampling.temperature, 1.0),
            "top_p": _or(sampling.top_p, 1.0),
            "top_k": max(0, _or(sampling.top_k, 0)),
            "min_p": _or(sampling.min_p, 0.0),
            "presence_penalty": _or(sampling.presence_penalty, 0.0),
            "frequency_penalty": _or(sampling.frequency_penalty, 0.0),
            "repeat_penalty": _or(sampling.repetition_penalty, 1.0),
            "repeat_last_n": self._config.penalty_last_n,
            "seed": -1 if seed is None else seed % _SEEDS,
        }
        if sampling.ignore_eos:
            body["ignore_eos"] = True
        if sampling.logprobs is not None:
            body["n_probs"] = max(1, sampling.logprobs)
        bias = self._logit_bias(sampling)
        if bias:
            body["logit_bias"] = bias
        return body

    def _check_ranges(self, sampling: Sampling) -> None:
        for name, value, low, high in (
            ("temperature", sampling.temperature, 0.0, None),
            ("top_p", sampling.top_p, 0.0, 1.0),
            ("top_k", sampling.top_k, -1, None),
            ("min_p", sampling.min_p, 0.0, 1.0),
            ("presence_penalty", sampling.presence_penalty, -2.0, 2.0),
            ("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0),
            ("repetition_penalty", sampling.repetition_penalty, 0.0, None),
            ("min_tokens", sampling.min_tokens, 0, sampling.max_tokens),
            ("logprobs", sampling.logprobs, 0, len(self._vocabulary)),
        ):
            if value is None or (low <= value and (high is None or value <= high)):
                continue
            between = f"at least {low}" if high is None else f"between {low} and {high}"
            raise InvalidRequest(f"{name} must be {between}, not {value}.", param=name)

    def _logit_bias(self, sampling: Sampling) -> list[tuple[int, float | bool]]:
        bias: dict[int, float | bool] = {}
        for token, value in (sampling.logit_bias or {}).items():
            if not 0 <= token < len(self._vocabulary):
                raise InvalidRequest(
                    f"logit_bias names the token {token}, which there is not.", param="logit_bias"
                )
            bias[token] = value
        for word in sampling.bad_words:
            for token in self._single_tokens(word):
                bias[token] = False
        return list(bias.items())

    def _single_tokens(self, word: str) -> set[int]:
        """The tokens that are `word`, at a text's beginning or after a space. Raises `Unsupported` for several tokens."""
        spellings = {
            tuple(self._tokenizer.encode(text)) for text in (word, f" {word}") if text.strip()
        }
        single = {spelling[0] for spelling in spellings if len(spelling) == 1}
        if not single:
            raise Unsupported(
                f"llamacpp can keep out only words that are one token; {word!r} is several.",
                param="bad_words",
            )
        return single


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
