"""Beam search, on any engine that takes tokens and reports log probabilities.

Each step requests one more token for each beam, with its alternatives, as vLLM's own server does. A prefix cache in the
engine keeps this cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import NamedTuple

import msgspec

from gateway.base.errors import EngineError, GatewayError, InvalidRequest, Unsupported
from gateway.engines.alignment import ScoredToken, TextAligner
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    BeamSearch,
    Engine,
    EngineOutput,
    EngineRequest,
    FinishReason,
    Sampling,
    Tokenizer,
    TokenLogprob,
    TokensPrompt,
    TopLogprob,
)
from gateway.wire.parameters import SharedParameters

MAX_WIDTH = 16
_MAX_PENALTY = 10.0

_WITHOUT_EFFECT = {
    "thinking_token_budget": "The reasoning of a beam search is not limited. Leave the parameter out.",
    "thinking_budget_tokens": "The reasoning of a beam search is not limited. Leave the parameter out.",
    "kv_transfer_params": "A beam search consists of many requests to the engine. Leave kv_transfer_params out.",
    **{
        name: f"Beam search takes the model's own probabilities, without {name}. Leave it out."
        for name in (
            "logit_bias",
            "bad_words",
            "allowed_token_ids",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
        )
    },
}
_NEUTRAL: tuple[object, ...] = (None, 0, [], {})


def beams_of(
    request: SharedParameters, model: ServedModel, sampling: Sampling, *, n: int = 1
) -> BeamSearch | None:
    """Return the beam search that `request` asks for, which yields the `n` best beams. None if it does not ask for one.

    Raises `Unsupported` if the engine has no beam search, or for parameters that a beam search cannot honour; and
    `InvalidRequest` for invalid values.
    """
    if not request.use_beam_search:
        return None
    if "beam_search" not in model.engine.capabilities:
        raise Unsupported(
            "Beam search is not available with the engine of this model. Leave the parameter out.",
            param="use_beam_search",
        )
    if n > 1 and "tokens" not in model.engine.capabilities:
        raise Unsupported(
            "Beam search gives one choice with this model. Send best_of, the number of beams.",
            param="n",
        )
    width = n if request.best_of is None else request.best_of
    if width < n:
        raise InvalidRequest(
            f"best_of, the number of beams, must be at least n ({n}).",
            param="best_of",
            code="invalid_value",
        )
    if width > MAX_WIDTH:
        raise InvalidRequest(
            f"A beam search has at most {MAX_WIDTH} beams.",
            param="n" if request.best_of is None else "best_of",
            code="integer_above_max_value",
        )
    if sampling.stop:
        raise Unsupported(
            "Beam search does not look for stop strings. Send stop_token_ids, or leave them out.",
            param="stop",
        )
    for name, message in _WITHOUT_EFFECT.items():
        value = getattr(request, name)
        if value in _NEUTRAL or (name == "repetition_penalty" and value == 1):
            continue
        if name == "thinking_budget_tokens" and value == -1:
            continue
        raise Unsupported(message, param=name)
    penalty = 1.0 if request.length_penalty is None else request.length_penalty
    if not -_MAX_PENALTY <= penalty <= _MAX_PENALTY:
        raise InvalidRequest(
            f"length_penalty must be between -{_MAX_PENALTY:g} and {_MAX_PENALTY:g}.",
            param="length_penalty",
            code="invalid_value",
        )
    return BeamSearch(width=width, length_penalty=penalty, early=request.early_stopping is True)


class _Token(NamedTuple):
    """A token of a beam, with the alternatives that the engine reported at its position."""

    chosen: TopLogprob
    others: Sequence[TopLogprob]


class _Beam(NamedTuple):
    """A sequence of tokens that follows the prompt, and the sum of their log probabilities."""

    tokens: tuple[_Token, ...] = ()
    total: float = 0.0
    ended: bool = False

    @property
    def ids(self) -> list[int]:
        return [token.chosen.token_id for token in self.tokens]

    @property
    def length(self) -> int:
        """Number of tokens, without the end token."""
        return len(self.tokens) - self.ended


class Beams:
    """The beam search of one generation. The choices of an answer share it: each choice is one of the best beams."""

    def __init__(self, search: BeamSearch) -> None:
        self.search = search
        self._done = asyncio.Event()
        self._found: Sequence[_Beam] = ()
        self._told: EngineOutput | None = None
        """The engine's output of the first step, with the counts and log probabilities of the prompt."""
        self._error: BaseException | None = None

    async def check(self, engine: Engine, request: EngineRequest) -> None:
        """Raise the error that the search would raise for `request`, whose prompt consists of tokens."""
        self._room(engine, request)
        if request.sampling.stop:
            raise Unsupported(
                "The format of this model ends its output at texts, which beam search does not look for.",
                param="use_beam_search",
            )
        first = _step(request, self.search, [], f"{request.request_id}-0.0", first=True)
        try:
            await engine.check(first)
        except InvalidRequest as error:
            if error.param not in ("logprobs", "top_logprobs"):
                raise
            raise InvalidRequest(
                f"Beam search of {self.search.width} beams needs {2 * self.search.width} log probabilities per token: "
                f"{error.message}",
                param="best_of",
                code=error.code,
            ) from error

    async def outputs(
        self, engine: Engine, request: EngineRequest, index: int
    ) -> AsyncGenerator[EngineOutput, None]:
        """Yield the beam of rank `index`, as one output. The call with index 0 runs the search; the others wait for
        it."""
        if index == 0:
            try:
                self._found = await self._run(engine, request)
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._done.set()
        else:
            await self._done.wait()
        if isinstance(self._error, GatewayError):
            raise self._error
        if self._error is not None:
            raise EngineError("The beam search was ended before it was complete.")
        if index >= len(self._found):
            raise EngineError("The beam search has found fewer sequences than were asked for.")
        assert engine.tokenizer is not None, "an engine that takes tokens has a tokenizer"
        yield _as_output(self._found[index], request, engine.tokenizer, self._told)

    def _room(self, engine: Engine, request: EngineRequest) -> int:
        """Return the maximum number of tokens of a beam."""
        assert isinstance(request.prompt, TokensPrompt), "engines with beam search take tokens"
        if request.sampling.max_tokens is None:
            raise InvalidRequest(
                "A beam search goes on to the limit of output tokens, so it needs one. Send max_output_tokens.",
                param="max_output_tokens",
            )
        context = engine.info.max_model_len
        if context is None:
            return request.sampling.max_tokens
        return min(request.sampling.max_tokens, max(1, context - len(request.prompt.token_ids)))

    async def _run(self, engine: Engine, request: EngineRequest) -> Sequence[_Beam]:
        """Run the search. Returns the best beams, best first."""
        search, sampling = self.search, request.sampling
        room = self._room(engine, request)
        least = sampling.min_tokens or 0
        ends = frozenset(sampling.stop_token_ids)
        if not sampling.ignore_eos:
            ends |= frozenset(engine.info.eos_token_ids)
        prompt = len(request.prompt.token_ids) if isinstance(request.prompt, TokensPrompt) else 0
        running, complete = [_Beam()], list[_Beam]()

        def score(beam: _Beam) -> float:
            return _score(beam.total, prompt + beam.length, search.length_penalty)

        context = engine.info.max_model_len
        for step in range(room):
            if step and context is not None and prompt + step >= context:
                break  # images may take more positions than the prompt has tokens for them
            made = await _extended(engine, request, search, running, step)
            if step == 0:
                self._told = made[0]
                prompt = made[0].prompt_tokens or prompt
            candidates: list[tuple[float, _Beam, _Token]] = []
            for beam, output in zip(running, made, strict=True):
                if not output.logprobs:
                    raise EngineError(
                        "The engine gave no log probabilities, which beam search needs."
                    )
                others = output.logprobs[0].top
                for top in others:
                    ended = top.token_id in ends
                    if ended and step < least:
                        continue
                    token, total = _Token(top, others), beam.total + top.logprob
                    if ended:
                        complete.append(_Beam((*beam.tokens, token), total, ended=True))
                    else:
                        candidates.append((total, beam, token))
            candidates.sort(key=itemgetter(0), reverse=True)
            running = [
                _Beam((*beam.tokens, token), total)
                for total, beam, token in candidates[: search.width]
            ]
            complete.sort(key=score, reverse=True)
            del complete[search.width :]
            if not running:
                break
            if len(complete) == search.width:
                if search.early:
                    running = []
                    break
                most = prompt + (room if search.length_penalty > 0 else running[0].length)
                if _score(running[0].total, most, search.length_penalty) < score(complete[-1]):
                    running = []  # none of them can still beat the complete ones
                    break
        return sorted([*complete, *running], key=score, reverse=True)[: search.width]


def _score(total: float, length: int, penalty: float) -> float:
    return float(total / max(1, length) ** penalty)


def _step(
    request: EngineRequest, search: BeamSearch, ids: Sequence[int], request_id: str, *, first: bool
) -> EngineRequest:
    """Return the engine request for the next token of a beam."""
    prompt = request.prompt
    assert isinstance(prompt, TokensPrompt), "engines with beam search take tokens"
    return msgspec.structs.replace(
        request,
        request_id=request_id,
        prompt=msgspec.structs.replace(prompt, token_ids=[*prompt.token_ids, *ids]),
        sampling=Sampling(
            max_tokens=1,
            temperature=0.0,
            repetition_penalty=1.0,
            logprobs=2 * search.width,
            prompt_logprobs=request.sampling.prompt_logprobs if first else None,
            skip_special_tokens=request.sampling.skip_special_tokens,
        ),
    )


async def _extended(
    engine: Engine, request: EngineRequest, search: BeamSearch, beams: Sequence[_Beam], step: int
) -> list[EngineOutput]:
    """Generate the next token of each of `beams`."""
    requests = [
        _step(request, search, beam.ids, f"{request.request_id}-{step}.{place}", first=step == 0)
        for place, beam in enumerate(beams)
    ]
    if len(requests) == 1:
        return [await _single(engine, requests[0])]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_single(engine, each)) for each in requests]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _single(engine: Engine, request: EngineRequest) -> EngineOutput:
    """Return the merged output of a request for one token."""
    whole = EngineOutput()
    async with aclosing(engine.generate(request)) as outputs:
        async for output in outputs:
            if output.finish_reason in ("error", "abort"):
                raise EngineError("The engine ended this request before it was complete.")
            whole.logprobs = whole.logprobs or output.logprobs
            whole.prompt_logprobs = whole.prompt_logprobs or output.prompt_logprobs
            for name in ("prompt_tokens", "cached_tokens"):
                if (value := getattr(output, name)) is not None:
                    setattr(whole, name, value)
    return whole


def _as_output(
    beam: _Beam, request: EngineRequest, tokenizer: Tokenizer, told: EngineOutput | None
) -> EngineOutput:
    """Return `beam` as the output of a whole generation. `told` is the engine's output of the first step."""
    sampling, ids = request.sampling, beam.ids
    hides_end = beam.ended and not sampling.include_stop_str_in_output
    shown = ids[:-1] if hides_end else ids
    text = tokenizer.decode(shown, skip_special_tokens=sampling.skip_special_tokens)
    finish: FinishReason = "stop" if beam.ended else "length"
    output = EngineOutput(text=text, token_ids=ids, finish_reason=finish)
    if beam.ended:
        output.stop_reason = ids[-1]
    if sampling.logprobs is not None:
        output.logprobs = _logprobs(beam, text, sampling, tokenizer, hides_end=hides_end)
    if told is not None:
        output.prompt_tokens, output.cached_tokens = told.prompt_tokens, told.cached_tokens
        output.prompt_logprobs = told.prompt_logprobs
    return output


def _logprobs(
    beam: _Beam, text: str, sampling: Sampling, tokenizer: Tokenizer, *, hides_end: bool
) -> list[TokenLogprob]:
    """Return the log probabilities of the beam's tokens. Their bytes add up to `text`."""
    pieces = {
        token.chosen.token_id: (token.chosen.token, token.chosen.bytes) for token in beam.tokens
    }
    hidden: frozenset[int] = frozenset()
    if sampling.skip_special_tokens:
        hidden = frozenset(
            each for each in pieces if not tokenizer.decode([each], skip_special_tokens=True)
        )
    return TextAligner(pieces.__getitem__, hidden).push(
        (
            ScoredToken(
                token.chosen.token_id,
                token.chosen.logprob,
                tuple(token.others[: sampling.logprobs]),
                token.chosen.bytes,
            )
            for token in beam.tokens
        ),
        text,
        ended_by_token=hides_end,
        last=True,
    )
