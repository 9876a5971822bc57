"""Writes a message as a stream of events, using precomputed bytes around the variable part."""

from __future__ import annotations

from gateway.sdk import GatewayError
from gateway.sdk.wire import encode
from gateway_messages.answer import Called, DeltaUsage, End, Message, WebCitation
from gateway_messages.errors import error_body
from gateway_messages.tool_answer import ToolAnswer

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
_END = b"}}\n\n"


class MessageEventWriter:
    """Writes a message as events. See `gateway_messages.assembler.BlockWriter`."""

    def __init__(self, message: Message, request_id: str) -> None:
        """`message` is the initial message, without content."""
        self._message = message
        self._request_id = request_id
        self._index = 0
        self._delta = b""
        """The beginning of each delta event of the open block."""

    def start(self) -> bytes:
        data = b'{"type":"message_start","message":%b}' % encode(self._message)
        return b"event: message_start\ndata: %b\n\n%b" % (data, PING)

    def open_text(self, index: int) -> bytes:
        self._delta = _DELTA % (index, b"text_delta", b"text")
        return self._open(index, b'{"type":"text","text":"","citations":null}')

    def text(self, text: str) -> bytes:
        return self._delta + encode(text) + _END

    def open_thinking(self, index: int) -> bytes:
        self._delta = _DELTA % (index, b"thinking_delta", b"thinking")
        return self._open(index, b'{"type":"thinking","thinking":"","signature":""}')

    def thinking(self, text: str) -> bytes:
        return self._delta + encode(text) + _END

    def signature(self, signature: str) -> bytes:
        begin = _DELTA % (self._index, b"signature_delta", b"signature")
        return begin + encode(signature) + _END

    def cite(self, citation: WebCitation) -> bytes:
        return _DELTA % (self._index, b"citations_delta", b"citation") + encode(citation) + _END

    def open_call(self, index: int, call: Called) -> bytes:
        self._delta = _DELTA % (index, b"input_json_delta", b"partial_json")
        return self._open(index, encode(call))

    def tool_input(self, text: str) -> bytes:
        return self._delta + encode(text) + _END

    def tool_answer(self, index: int, answer: ToolAnswer) -> bytes:
        return self._open(index, encode(answer)) + self.close()

    def close(self) -> bytes:
        return (
            b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
            % self._index
        )

    def finish(self, end: End) -> bytes:
        frame = (
            b'{"type":"message_delta","delta":{"stop_reason":%b,"stop_sequence":%b,"stop_details":null,"container":null},'
            b'"usage":%b}'
            % (
                encode(end.stop_reason),
                encode(end.stop_sequence),
                encode(DeltaUsage(**end.counted())),
            )
        )
        return (
            b"event: message_delta\ndata: %b\n\n" % frame
            + b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
        )

    def fail(self, error: GatewayError) -> bytes:
        return error_event(error, self._request_id)

    def idle(self) -> bytes:
        return PING

    def _open(self, index: int, block: bytes) -> bytes:
        self._index = index
        return (
            b'event: content_block_start\ndata: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
            % (index, block)
        )


def error_event(error: GatewayError, request_id: str) -> bytes:
    """The event that ends a stream which has failed."""
    return b"event: error\ndata: %b\n\n" % error_body(error, request_id)
