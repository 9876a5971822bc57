"""Ending the reasoning of a generation after a number of tokens, on any engine that takes tokens.

The engine's generation is closed, the end of reasoning of the output format is appended, and a second generation
continues from there. The parser reads both as one output.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from gateway.base.constraints import Constraint
from gateway.base.deltas import ReasoningDelta
from gateway.base.errors import Unsupported
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import (
    Engine,
    EngineOutput,
    EngineRequest,
    OutputFormat,
    OutputParser,
    ReasoningPiece,
    Tail,
    TextPiece,
    TokensPrompt,
)
from gateway.wire.ids import new_id

_REASONING, _TEXT = "Qreasoningq", "Qtextq"
_PROBE = "q"
_MAX_TRIES = 256
"""Maximum number of outputs after the limit at which the gateway tries to end the reasoning. Each try parses the whole
output again."""


def end_of_reasoning(output_format: OutputFormat, tail: Tail) -> str | None:
    """Return the text that a model of this output format writes between reasoning and text; None if the format has no
    reasoning."""
    try:
        written = output_format.write([ReasoningPiece(_REASONING), TextPiece(_TEXT)], tail=tail)
    except Unsupported:
        return None
    _, found, rest = written.partition(_REASONING)
    marker, also_found, _ = rest.partition(_TEXT)
    return marker if found and also_found and marker.strip() else None


def _lags(engine: Engine, request: EngineRequest, texts: Sequence[str], ids: Sequence[int]) -> bool:
    """Whether the text of some tokens has not arrived yet. Returns False if the tokenizer decodes differently from its
    engine."""
    assert engine.tokenizer is not None, "an engine that takes tokens has a tokenizer"
    hidden = request.sampling.skip_special_tokens
    whole, seen = engine.tokenizer.decode(ids, skip_special_tokens=hidden), "".join(texts)
    return len(whole) > len(seen) and whole.startswith(seen)


class ThinkingBudget:
    """Limits the reasoning of one generation."""

    def __init__(
        self,
        tokens: int,
        marker: str,
        parser: OutputParser,
        new_parser: Callable[[], OutputParser],
        *,
        aligner: LogprobAligner | None,
        constraint: Callable[[], Constraint | None],
    ) -> None:
        """`marker` is the result of `end_of_reasoning`. `parser` is fed each output before the next one is requested.
        `new_parser` makes parsers in their initial state. `constraint` makes the constraint on the output after the
        reasoning."""
        self._tokens = tokens
        self._marker = marker
        self._parser = parser
        self._new_parser = new_parser
        self._aligner = aligner
        self._constraint = constraint

    async def generate(
        self, engine: Engine, request: EngineRequest, prefill: str
    ) -> AsyncGenerator[EngineOutput, None]:
        """Generate like the engine, with limited reasoning. `prefill` was fed to the parser before."""
        prompt, ids = request.prompt, list[int]()
        assert isinstance(prompt, TokensPrompt), "messages are not counted"
        if self._tokens or not self._can_end([prefill], []):
            texts = [prefill]
            reasoning, tries = self._parser.reasoning_tokens, 0
            ended = False
            async with aclosing(engine.generate(request)) as outputs:
                async for output in outputs:
                    ids += output.token_ids
                    texts.append(output.text)
                    yield output
                    before, reasoning = reasoning, self._parser.reasoning_tokens
                    if output.finish_reason is not None:
                        return
                    if reasoning > before and reasoning >= self._tokens and output.text:
                        tries += 1
                        if (
                            tries <= _MAX_TRIES
                            and not _lags(engine, request, texts[1:], ids)
                            and self._can_end(texts, ids)
                        ):
                            ended = True
                            break
            if not ended:
                return
        async with aclosing(self._rest(engine, request, prompt, ids)) as outputs:
            async for output in outputs:
                yield output

    def _can_end(self, texts: Sequence[str], ids: Sequence[int]) -> bool:
        """Whether the output so far ends within reasoning, and not within a possible marker."""
        parser = self._new_parser()
        parser.feed(EngineOutput(text="".join(texts), token_ids=ids))
        more = parser.feed(EngineOutput(text=_PROBE))
        return "".join(each.text for each in more if isinstance(each, ReasoningDelta)) == _PROBE

    async def _rest(
        self, engine: Engine, request: EngineRequest, prompt: TokensPrompt, ids: list[int]
    ) -> AsyncGenerator[EngineOutput, None]:
        tokenizer, sampling = engine.tokenizer, request.sampling
        assert tokenizer is not None, "an engine that takes tokens has a tokenizer"
        marker = tokenizer.encode(self._marker)
        if self._aligner is not None:
            self._aligner.skip(self._marker)
        yield EngineOutput(text=self._marker, token_ids=marker)
        made = len(ids) + len(marker)
        left = None if sampling.max_tokens is None else sampling.max_tokens - made
        context = engine.info.max_model_len
        length = len(prompt.token_ids) + made
        if (left is not None and left < 1) or (context is not None and length >= context):
            yield EngineOutput(finish_reason="length")
            return
        least = sampling.min_tokens
        continued = msgspec.structs.replace(
            request,
            request_id=f"{request.request_id}-{new_id('after_')}",
            prompt=msgspec.structs.replace(prompt, token_ids=[*prompt.token_ids, *ids, *marker]),
            sampling=msgspec.structs.replace(
                sampling,
                max_tokens=left,
                min_tokens=None if least is None else max(0, least - made),
                prompt_logprobs=None,
            ),
            constraint=self._constraint(),
            kv_transfer_params={},  # they refer to the request's own prompt
            tail="text",
        )
        async with aclosing(engine.generate(continued)) as outputs:
            async for output in outputs:
                # The prompt is counted once, without the output of the first generation.
                output.prompt_tokens = output.cached_tokens = None
                yield output
