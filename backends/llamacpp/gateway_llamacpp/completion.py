"""Converts engine requests to llama.cpp completion bodies, and rejects what llama.cpp does not support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from gateway.sdk import (
    EngineRequest,
    InvalidRequest,
    PlacedMedia,
    Sampling,
    TokensPrompt,
    Unsupported,
)
from gateway.sdk.engines import unknown_adapter
from gateway_llamacpp.config import LlamaCppConfig
from gateway_llamacpp.media_prompt import MediaPrompts
from gateway_llamacpp.tokenizer import LlamaCppTokenizer
from gateway_llamacpp.vocabulary import Vocabulary

_SEEDS = 2**32 - 1
"""llama.cpp's seeds are 32-bit, and the highest value means random."""
_UNFINISHED = 3
"""Tokens past the limit that may be needed to complete a UTF-8 character, so that llama.cpp reports those before it."""
_SAMPLERS = ("penalties", "temperature", "min_p", "top_k", "top_p")
"""Samplers in vLLM's order: temperature first, so that top_p has OpenAI's meaning."""


class LlamaCppRequest(Struct, frozen=True):
    """A request for llama.cpp, and its maximum number of tokens."""

    body: dict[str, Any]
    prompt: list[int]
    sampling: Sampling
    limit: int
    length: int
    """Number of tokens of the prompt, with its images and sounds."""
    media: Sequence[PlacedMedia] = ()
    prompts: MediaPrompts | None = None
    """Writes prompts with media. None: the model has no projector."""

    def in_slot(self, number: int, *, reusable: bool) -> LlamaCppRequest:
        """The same completion in a given slot. `reusable`: the slot's cached prefix may be used."""
        cache = self.body["cache_prompt"] and reusable
        body = self.body | {"id_slot": number, "cache_prompt": cache}
        return structs.replace(self, body=body)

    def constrained(self, grammar: str, bias: Mapping[int, float]) -> LlamaCppRequest:
        """The same completion with a grammar that its output follows. `bias` holds for tokens that the request does not weigh."""
        body = self.body | {"grammar": grammar}
        if bias:
            body["logit_bias"] = list({**bias, **dict(self.body.get("logit_bias", ()))}.items())
        return structs.replace(self, body=body)

    def opening(self) -> tuple[dict[str, Any], int] | None:
        """The body of the part that generates `min_tokens` without an end, and its number of tokens; None if not
        needed."""
        number = min(self.sampling.min_tokens or 0, self.limit)
        if number == 0:
            return None
        bias = [
            *self.body.get("logit_bias", ()),
            *((token, False) for token in self.sampling.stop_token_ids),
        ]
        return self._part([], number) | {"ignore_eos": True, "logit_bias": bias}, number

    def rest(self, generated: list[int]) -> dict[str, Any]:
        """The body of the part after `generated`."""
        return self._part(generated, self.limit - len(generated))

    def _part(self, generated: list[int], number: int) -> dict[str, Any]:
        ids = self.prompt + generated
        prompt = ids if self.prompts is None else self.prompts.body(ids, self.media)
        return self.body | {"prompt": prompt, "n_predict": number + _UNFINISHED}


class CompletionBuilder:
    """Builds completions for one loaded model."""

    def __init__(
        self,
        config: LlamaCppConfig,
        vocabulary: Vocabulary,
        tokenizer: LlamaCppTokenizer,
        max_model_len: int,
        prompts: MediaPrompts | None = None,
    ) -> None:
        """`prompts`: for a model with a projector, whose completions take the native route."""
        self._config = config
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._prompts = prompts

    def build(self, request: EngineRequest, grammar: str | None = None) -> LlamaCppRequest:
        """The completion for `request`, constrained by `grammar`. Raises `InvalidRequest` or `Unsupported`, naming the
        parameter. With media it asks llama.cpp for their number of tokens, and blocks."""
        if not isinstance(request.prompt, TokensPrompt):
            raise Unsupported(
                "llamacpp takes prompts as token ids, not as messages.", param="input"
            )
        adapter = self._adapter(request.adapter)
        prompt = list(request.prompt.token_ids)
        media = request.prompt.media
        length = self.length(request.prompt)
        self._check_prompt(prompt, length)
        if media and self._prompts is not None:
            self._prompts.check(prompt, media)
        sampling = request.sampling
        limit = self._limit(sampling, length)
        body = self._sampling(sampling, request)
        if self._config.lora_modules:
            body["lora"] = adapter
        if request.constraint is not None:
            if sampling.min_tokens:
                raise Unsupported(
                    "llamacpp cannot combine min_tokens with a constrained output.",
                    param="min_tokens",
                )
            body["grammar"] = grammar
        return LlamaCppRequest(body, prompt, sampling, limit, length, media, self._prompts)

    def length(self, prompt: TokensPrompt) -> int:
        """Number of tokens of `prompt`, with its images and sounds. Raises `Unsupported` for those that the model does
        not take. Blocks if there are any."""
        length = len(prompt.token_ids)
        for placed in prompt.media:
            if self._prompts is None:
                raise Unsupported("This model takes only text.", param=placed.param)
            length += self._prompts.tokens(placed.media)
        return length

    def _adapter(self, name: str | None) -> list[dict[str, Any]]:
        """The adapters to apply: the requested one and no others."""
        names = list(self._config.lora_modules)
        if name is None:
            return [{"id": index, "scale": 0.0} for index in range(len(names))]
        if name not in names:
            raise unknown_adapter(name, names)
        return [{"id": names.index(name), "scale": 1.0}]

    def _check_prompt(self, prompt: list[int], length: int) -> None:
        if not prompt:
            raise InvalidRequest("The prompt is empty.", param="input")
        if min(prompt) < 0 or max(prompt) >= len(self._vocabulary):
            raise InvalidRequest(
                f"The prompt has a token id outside of the vocabulary (0 to {len(self._vocabulary) - 1}).",
                param="input",
            )
        if length >= self._max_model_len:
            raise InvalidRequest(
                f"This model's maximum context length is {self._max_model_len} tokens, but the prompt alone has "
                f"{length}. Shorten the input.",
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
        if wrong := [t for t in sampling.stop_token_ids if not 0 <= t < len(self._vocabulary)]:
            raise InvalidRequest(
                f"stop_token_ids: token id {wrong[0]} is outside the model's vocabulary.",
                param="stop_token_ids",
            )
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
        if self._prompts is not None:
            body["return_tokens"] = True
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
                    f"logit_bias: token id {token} is outside the model's vocabulary.",
                    param="logit_bias",
                )
            bias[token] = value
        for word in sampling.bad_words:
            for token in self._single_tokens(word):
                bias[token] = False
        return list(bias.items())

    def _single_tokens(self, word: str) -> set[int]:
        """Single tokens that spell `word`, at the start of a text or after a space. Raises `Unsupported` if it takes
        several tokens."""
        spellings = {
            tuple(self._tokenizer.encode(text)) for text in (word, f" {word}") if text.strip()
        }
        single = {spelling[0] for spelling in spellings if len(spelling) == 1}
        if not single:
            raise Unsupported(
                f"llamacpp supports only bad_words that are one token; {word!r} is several.",
                param="bad_words",
            )
        return single


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
