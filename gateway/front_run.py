"""One answer that a front writes."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.choices import ByteSink
from gateway.deltas import Delta
from gateway.generation import Generation, Generator
from gateway.protocols import AnswerWriter, FinishReason, Outcome


class WrittenChoice:
    """The one choice of a front's answer, written by the front."""

    def __init__(self, generator: Generator, first: Generation, writer: AnswerWriter) -> None:
        self.generator = generator
        self._first = first
        self._writer = writer
        self._reason: FinishReason = "stop"

    @property
    def cut_off(self) -> bool:
        return self._reason in ("length", "content_filter")

    async def run(self, sink: ByteSink) -> bytes:
        writer = self._writer
        await self.generator.run(self._first, writer.feed, self._end, sink)
        return writer.finish(
            Outcome(
                reason=self._reason,
                stop_reason=self.generator.stop_reason,
                usage=self.generator.tokens.usage(),
                context_full=self._context_full(),
            )
        )

    def _end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        self._reason = reason
        return self._writer.end(held, reason)

    def _context_full(self) -> bool:
        limit = self.generator.model.info.max_model_len
        wanted = self._first.request.sampling.max_tokens
        tokens = self.generator.tokens
        if self._reason != "length" or limit is None or wanted == tokens.output:
            return False
        return tokens.input + tokens.output >= limit - 1  # engines may keep one place free
