"""Reads Chat Completions chunks as deltas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import EngineRequest, FinishReason, ReasoningDelta, RefusalDelta
from gateway_openai.building import DeltaBuilder
from gateway_openai.errors import Translator, UpstreamError
from gateway_openai.scores import UpstreamLogprob

_FINISH: dict[str, FinishReason] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
    "error": "error",
    "insufficient_system_resource": "error",  # DeepSeek: interrupted
    "abort": "abort",
}
"""Finish reasons that are not a natural end. All others, such as `stop` and `tool_calls`, are."""


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Custom(Struct, gc=False):
    name: str | None = None
    input: str | None = None


class _CallPart(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    custom: _Custom | None = None


class _Delta(Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallPart] | None = None


class _Logprobs(Struct, gc=False):
    content: list[UpstreamLogprob] | None = None


class _Choice(Struct, gc=False):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    """The whole answer, of servers that do not stream."""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: _Logprobs | None = None


class _PromptDetails(Struct, gc=False):
    cached_tokens: int | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: UpstreamError | str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode


class ChatBuilder(DeltaBuilder):
    """State of one streamed choice."""

    def __init__(
        self, request: EngineRequest, translator: Translator, reasoning_fields: Sequence[str]
    ) -> None:
        super().__init__(request, translator)
        self._reasoning_fields = reasoning_fields
        self._last_key: object = None

    def read(self, choice: _Choice) -> None:
        """Read the choice of one chunk."""
        if (delta := choice.delta or choice.message) is not None:
            if self.count and (delta.content or delta.tool_calls):
                self.count = self.reasoning = 0  # an earlier report, as of the first token
            reasoning = None
            for name in self._reasoning_fields:
                reasoning = reasoning or getattr(delta, name)
            if reasoning:
                self.blocks.write(ReasoningDelta(reasoning))
            tokens = choice.logprobs.content if choice.logprobs is not None else None
            if delta.content or (tokens and not reasoning):
                self.text(delta.content or "", tokens)
            if delta.refusal:
                self.blocks.write(RefusalDelta(delta.refusal))
            for part in delta.tool_calls or ():
                self._read_call(part)
        if choice.finish_reason and not self.finished:
            self.end(_FINISH.get(choice.finish_reason, "stop"), choice.stop_reason)

    def _read_call(self, part: _CallPart) -> None:
        """Read a part of a call. Servers may omit the index, send the id once or repeatedly, or use index 0 for all
        calls."""
        blocks = self.blocks
        key: object = part.index
        if key is None:
            known = part.id is None or self._continues(self._last_key, part.id)
            key = self._last_key if known and self._last_key is not None else ("new", part.id)
        call = blocks.call(key)
        if call is None or (part.id and call.call_id and part.id != call.call_id):
            call = blocks.start(key, part.id or None, custom=part.custom is not None)
        elif call.call_id is None and part.id:
            call.call_id = part.id
        self._last_key = key
        called = part.custom or part.function
        if called is None:
            return
        if called.name and not call.name:
            call.name = called.name
        given = called.input if isinstance(called, _Custom) else called.arguments
        if isinstance(given, dict):
            given = msgspec.json.encode(given).decode()
        blocks.arguments(call, given or "")

    def _continues(self, key: object, call_id: str) -> bool:
        call = self.blocks.call(key)
        return call is not None and call.call_id in (None, call_id)


def read_chat(event: bytes, builder: ChatBuilder) -> None:
    """Pass a chunk to the builder. Raises `msgspec.DecodeError` for a malformed chunk, and the translated exception for
    an error object in the stream."""
    chunk = _decode(event)
    if chunk.error is not None:
        error = chunk.error if isinstance(chunk.error, UpstreamError) else None
        raise builder.translator.event(error or UpstreamError(message=str(chunk.error)))
    for choice in chunk.choices or ():
        if choice.index == 0:
            builder.read(choice)
    usage = chunk.usage
    if usage is not None:
        read, made = usage.prompt_tokens_details, usage.completion_tokens_details
        builder.report(
            usage.prompt_tokens,
            usage.completion_tokens,
            cached=None if read is None else read.cached_tokens,
            reasoning=None if made is None else made.reasoning_tokens,
        )
        if builder.finished and usage.prompt_tokens and usage.completion_tokens:
            builder.complete = True  # whether or not the upstream says so
