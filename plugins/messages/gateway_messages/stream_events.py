"""The events of a streamed message, as they are described to clients. `gateway_messages.events` writes them."""

from __future__ import annotations

from typing import TypeAlias

from gateway.sdk.wire import Tagged, Value
from gateway_messages.answer import Content, DeltaUsage, Message, StopReason, WebCitation
from gateway_messages.errors import ErrorObject


class MessageStart(Tagged, frozen=True, kw_only=True, tag="message_start"):
    """The first event: the message without content."""

    message: Message


class ContentBlockStart(Tagged, frozen=True, kw_only=True, tag="content_block_start"):
    """A block begins. Text, thinking and the input of calls are empty, and come in deltas; results are complete."""

    index: int
    content_block: Content


class TextDelta(Tagged, frozen=True, kw_only=True, tag="text_delta"):
    """A part of a text."""

    text: str


class ThinkingDelta(Tagged, frozen=True, kw_only=True, tag="thinking_delta"):
    """A part of the thinking."""

    thinking: str


class SignatureDelta(Tagged, frozen=True, kw_only=True, tag="signature_delta"):
    """The signature of a block of thinking, at its end."""

    signature: str


class InputJsonDelta(Tagged, frozen=True, kw_only=True, tag="input_json_delta"):
    """A part of the input of a call, as JSON."""

    partial_json: str


class CitationsDelta(Tagged, frozen=True, kw_only=True, tag="citations_delta"):
    """One more source of a text."""

    citation: WebCitation


BlockDelta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta


class ContentBlockDelta(Tagged, frozen=True, kw_only=True, tag="content_block_delta"):
    """A part of a block."""

    index: int
    delta: BlockDelta


class ContentBlockStop(Tagged, frozen=True, kw_only=True, tag="content_block_stop"):
    """A block ends."""

    index: int


class MessageEnd(Value, frozen=True, kw_only=True):
    """How the message ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    stop_details: None
    container: None


class MessageDelta(Tagged, frozen=True, kw_only=True, tag="message_delta"):
    """The end of the message, with its whole usage."""

    delta: MessageEnd
    usage: DeltaUsage


class MessageStop(Tagged, frozen=True, kw_only=True, tag="message_stop"):
    """The last event."""


class Ping(Tagged, frozen=True, kw_only=True, tag="ping"):
    """Nothing has happened; the connection is alive."""


class StreamError(Tagged, frozen=True, kw_only=True, tag="error"):
    """The message has failed. Nothing follows."""

    error: ErrorObject
    request_id: str


MessageEvent: TypeAlias = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | StreamError
)
