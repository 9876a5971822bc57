"""Assembles an answer into one message."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.sdk import GatewayError
from gateway.sdk.wire import decode_text, encode
from gateway_messages.answer import (
    Called,
    Content,
    End,
    Message,
    TextContent,
    ThinkingContent,
    Usage,
    WebCitation,
)
from gateway_messages.tool_answer import ToolAnswer

INVALID_JSON = "INVALID_JSON"
"""The key for input that is not a JSON object, as the API's documentation recommends."""


class MessageBodyWriter:
    """Collects an answer and writes it at the end. See `gateway_messages.assembler.BlockWriter`."""

    def __init__(self, message: Message) -> None:
        """`message` is the initial message, without content."""
        self._message = message
        self._content: list[Content] = []
        self._citations: list[WebCitation] = []
        self._call: Called | None = None
        self._signature: str | None = None
        self._parts: list[str] = []

    def start(self) -> bytes:
        return b""

    def open_text(self, index: int) -> bytes:
        return b""

    def text(self, text: str) -> bytes:
        self._parts.append(text)
        return b""

    def open_thinking(self, index: int) -> bytes:
        return b""

    def thinking(self, text: str) -> bytes:
        self._parts.append(text)
        return b""

    def signature(self, signature: str) -> bytes:
        self._signature = signature
        return b""

    def cite(self, citation: WebCitation) -> bytes:
        self._citations.append(citation)
        return b""

    def open_call(self, index: int, call: Called) -> bytes:
        self._call = call
        return b""

    def tool_input(self, text: str) -> bytes:
        self._parts.append(text)
        return b""

    def tool_answer(self, index: int, answer: ToolAnswer) -> bytes:
        self._content.append(answer)
        return b""

    def close(self) -> bytes:
        text = "".join(self._parts)
        block: Content
        if self._call is not None:
            block = msgspec.structs.replace(self._call, input=input_of(text))
        elif self._signature is not None:
            block = ThinkingContent(thinking=text, signature=self._signature)
        else:
            block = TextContent(text=text, citations=self._citations or None)
        self._content.append(block)
        self._parts, self._citations, self._call, self._signature = [], [], None, None
        return b""

    def finish(self, end: End) -> bytes:
        return encode(
            msgspec.structs.replace(
                self._message,
                content=self._content,
                stop_reason=end.stop_reason,
                stop_sequence=end.stop_sequence,
                usage=Usage(**end.counted()),
            )
        )

    def fail(self, error: GatewayError) -> bytes:
        raise AssertionError("a plain answer that fails is an error's")

    def idle(self) -> bytes:
        return b""


def input_of(written: str) -> dict[str, Any]:
    """A call's input as an object. Input that is not a JSON object, or was truncated, is wrapped in one as text."""
    if not written.strip():
        return {}
    try:
        value = decode_text(written)
    except msgspec.DecodeError:
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON: written}
