"""Reads Responses API events as deltas."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from gateway.sdk import (
    EncryptedReasoning,
    EngineRequest,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
)
from gateway_openai.blocks import CallBlock
from gateway_openai.building import DeltaBuilder
from gateway_openai.errors import Translator, UpstreamError
from gateway_openai.scores import UpstreamLogprob


class _Part(Struct):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    logprobs: list[UpstreamLogprob] | None = None


class _Item(Struct):
    type: str
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    phase: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None


class _TypeOnly(Struct):
    type: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    object: str | None = None
    output: list[_Item] = []
    status: str | None = None
    usage: _Usage | None = None
    error: UpstreamError | None = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct):
    type: str
    delta: str | None = None
    output_index: int = 0
    item: _Item | None = None
    logprobs: list[UpstreamLogprob] | None = None
    response: _Response | None = None
    error: UpstreamError | None = None
    message: str | None = None
    code: int | str | None = None
    param: str | None = None


_READ = frozenset(
    {
        "error",
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_part.added",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
        "response.failed",
    }
)
"""Events that are read. The others repeat them, or concern tools that the upstream runs itself."""

_decode = msgspec.json.Decoder(_Event).decode
_decode_whole = msgspec.json.Decoder(_Response).decode
_decode_type = msgspec.json.Decoder(_TypeOnly).decode


class _ItemProgress(Struct):
    """What has been read of one item."""

    kind: str
    written: bool = False
    shown: Literal["text", "summary"] | None = None
    """Which form of a reasoning item is shown, its text or its summary: the first to arrive."""


class ResponsesBuilder(DeltaBuilder):
    """State of one streamed response."""

    def __init__(
        self, request: EngineRequest, translator: Translator, origin: str | None = None
    ) -> None:
        """`origin` marks encrypted reasoning as this upstream's; without one, it is dropped."""
        super().__init__(request, translator)
        self._origin = origin
        self._items: dict[int, _ItemProgress] = {}
        self._last_kind: str | None = None

    def write(self, event: _Event) -> None:
        """Read an event that extends an item."""
        delta, index = event.delta or "", event.output_index
        match event.type:
            case "response.output_text.delta":
                self._item(index, "message").written = True
                self.text(delta, event.logprobs)
            case "response.refusal.delta":
                self._item(index, "message").written = True
                if delta:
                    self.blocks.write(RefusalDelta(delta))
            case "response.reasoning_text.delta":
                self._reason(self._item(index, "reasoning"), "text", delta)
            case "response.reasoning_summary_text.delta":
                self._reason(self._item(index, "reasoning"), "summary", delta)
            case "response.reasoning_summary_part.added":
                item = self._item(index, "reasoning")
                if item.written and item.shown == "summary":
                    self.blocks.write(ReasoningDelta("\n\n"))
            case _:
                call = self.blocks.call(index)
                if call is not None:
                    self._item(index, "call").written = True
                    self.blocks.arguments(call, delta)

    def item_added(self, index: int, item: _Item) -> None:
        """Start an item."""
        match item.type:
            case "message":
                self._item(index, "message", item.phase)
            case "reasoning":
                self._item(index, "reasoning")
            case "function_call" | "custom_tool_call":
                self._start(index, item)
            case _:
                pass  # items of tools that the upstream runs itself

    def item_done(self, index: int, item: _Item) -> None:
        """End an item. Emits what was not streamed before."""
        match item.type:
            case "message":
                known = self._item(index, "message", item.phase)
                for part in () if known.written else item.content or ():
                    if part.type == "refusal" and part.refusal:
                        self.blocks.write(RefusalDelta(part.refusal))
                    elif part.text:
                        self.text(part.text, part.logprobs)
            case "reasoning":
                known = self._item(index, "reasoning")
                if not known.written:
                    parts = item.content or item.summary or ()
                    self._reason(known, "text", "\n\n".join(part.text or "" for part in parts))
                if item.encrypted_content and self._origin is not None:
                    self.blocks.write(
                        EncryptedReasoning(f"{self._origin}.{item.encrypted_content}")
                    )
            case "function_call" | "custom_tool_call":
                call = self.blocks.call(index) or self._start(index, item)
                given = item.input if call.custom else item.arguments
                if not self._item(index, "call").written and given:
                    self.blocks.arguments(call, given)
                if item.status != "incomplete":  # otherwise a limit cut it off
                    self.blocks.end(index)
            case _:
                pass

    def _start(self, index: int, item: _Item) -> CallBlock:
        custom = item.type == "custom_tool_call"
        self._items[index] = _ItemProgress("call")
        self._last_kind = "call"
        call = self.blocks.start(index, item.call_id, custom=custom)
        call.name = item.name or ""
        self.blocks.arguments(call, "")
        return call

    def _item(self, index: int, kind: str, phase: str | None = None) -> _ItemProgress:
        """The item at this index; started now if it is unknown."""
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _ItemProgress(kind)
            if kind == "message" and (phase or self._last_kind == "message"):
                self.new_message(phase)
            elif kind == "reasoning" and self._last_kind == "reasoning":
                self.new_message(None)
            self._last_kind = kind
        return item

    def _reason(self, item: _ItemProgress, form: Literal["text", "summary"], text: str) -> None:
        item.shown = item.shown or form
        if text and item.shown == form:
            item.written = True
            self.blocks.write(ReasoningDelta(text))

    def over(self, response: _Response) -> None:
        """End the response. Raises the translated exception if it failed."""
        usage = response.usage
        if usage is not None:
            read, made = usage.input_tokens_details, usage.output_tokens_details
            self.report(
                usage.input_tokens,
                usage.output_tokens,
                cached=None if read is None else read.cached_tokens,
                reasoning=None if made is None else made.reasoning_tokens,
            )
        self.end(_finish(response))
        self.complete = True


def _finish(response: _Response) -> FinishReason:
    if response.status == "cancelled":
        return "abort"
    if response.status != "incomplete":
        return "stop"
    why = response.incomplete_details.reason if response.incomplete_details else None
    return "content_filter" if why == "content_filter" else "length"


def _read_whole(answer: bytes, builder: ResponsesBuilder) -> None:
    """Read the answer of a server that does not stream."""
    response = _decode_whole(answer)
    if response.error is not None or response.object != "response" or response.status == "failed":
        raise builder.translator.event(response.error or UpstreamError())
    for index, item in enumerate(response.output):
        builder.item_added(index, item)
        builder.item_done(index, item)
    builder.over(response)


def read_responses(event: bytes, builder: ResponsesBuilder) -> None:
    """Pass an event to the builder. Raises `msgspec.DecodeError` for a malformed event, and the translated exception
    for a failure."""
    try:
        decoded = _decode(event)
    except msgspec.ValidationError:
        if _decode_type(event).type is None:
            _read_whole(event, builder)
            return
        # An unknown event may have fields of any type.
        if _decode_type(event).type in _READ:
            raise
        return
    if decoded.type not in _READ:
        return
    match decoded.type:
        case "response.output_item.added" if decoded.item is not None:
            builder.item_added(decoded.output_index, decoded.item)
        case "response.output_item.done" if decoded.item is not None:
            builder.item_done(decoded.output_index, decoded.item)
        case "response.completed" | "response.incomplete":
            builder.over(
                decoded.response or _Response(status=decoded.type.removeprefix("response."))
            )
        case "response.failed":
            error = decoded.response.error if decoded.response is not None else None
            raise builder.translator.event(error or UpstreamError())
        case "error":
            flat = UpstreamError(decoded.message, None, decoded.param, decoded.code)
            raise builder.translator.event(decoded.error or flat)
        case _:
            builder.write(decoded)
