"""The answer of a plugin's API."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.deltas import Delta
from gateway.loop.choices import ByteSink
from gateway.loop.error_params import ApiParams
from gateway.loop.generation import Generation
from gateway.loop.generator import Generator
from gateway.loop.server_tool_loop import ServerToolLoop
from gateway.protocols import (
    AnswerWriter,
    CallWriter,
    FinishReason,
    GenerationRequest,
    Outcome,
    ToolResult,
)


class ApiChoice:
    """The single choice of an API's answer, written by the API's `AnswerWriter`. Implements `ToolAnswerWriter`."""

    def __init__(
        self,
        request: GenerationRequest,
        generator: Generator,
        first: Generation,
        writer: AnswerWriter,
        tools: ServerToolLoop,
    ) -> None:
        self._request = request
        self.generator = generator
        self._first = first
        self._writer = writer
        self.feed = writer.feed
        self._tools = tools
        self._reason: FinishReason = "stop"

    @property
    def cut_off(self) -> bool:
        return self._reason in ("length", "content_filter")

    async def run(self, sink: ByteSink) -> bytes:
        writer = self._writer
        request = self._request
        with ApiParams(request):
            if self._tools.offered:
                last = await self._tools.run(
                    self._first, self, sink, max_turns=request.max_turns, max_uses=request.max_uses
                )
            else:
                last = await self.generator.run(self._first, self, sink)
        end = writer.finish(
            Outcome(
                reason=self._reason,
                stop_reason=self.generator.stop_reason,
                usage=self.generator.tokens.usage(),
                context_full=self._context_full(),
                paused=self._tools.paused,
            )
        )
        return last + end

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        self._reason = reason
        return self._writer.end(held, reason)

    def called(self, result: ToolResult) -> bytes:
        return self._writer.called(result) if isinstance(self._writer, CallWriter) else b""

    def _context_full(self) -> bool:
        generator = self.generator
        limit = generator.model.info.max_model_len
        wanted = self._first.request.sampling.max_tokens
        if self._reason != "length" or limit is None or wanted == generator.tokens.output:
            return False
        return generator.context >= limit - 1  # engines may reserve one position
