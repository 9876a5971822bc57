"""uvicorn's HTTP protocol, with a limit on what comes before a body, and errors in OpenAI's envelope."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD: Final = 65_536
"""Bytes of a request's line and headers: what h11, uvicorn's other parser, allows. The parser itself knows no end."""
_CODES: Final = {400: "invalid_request", 431: "request_headers_too_large"}


class HeadTooLarge(Exception):
    """Raised within the parser's callbacks, so that it stops."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Refuses a request whose line and headers are longer than `MAX_HEAD` with 431, and what is no HTTP with 400."""

    _head = 0
    """Bytes of the head that is being read, as far as the parser has told of it."""
    _unread = 0
    """Bytes that have come since the last head ended: those of one unfinished header are among them."""
    _in_head = True
    _ended = False
    _too_large = False

    def data_received(self, data: bytes) -> None:
        self._ended = False
        super().data_received(data)
        # Where a request has ended in this piece, what follows it is counted with the next one.
        if self._in_head and not self._ended and not self.transport.is_closing():
            self._unread += len(data)
            if self._unread > MAX_HEAD:
                self._too_large = True
                self.send_400_response("")

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head = self._unread = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)  # with the colon, a space and the line's end
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = self._ended = True
        self._unread = 0

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD:
            self._too_large = True
            raise HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        """Answer and close. uvicorn calls this for whatever its parser refuses."""
        status = HTTPStatus(431 if self._too_large else 400)
        said = msg or "Invalid HTTP request received."
        if self._too_large:
            said = f"The request's line and headers are longer than {MAX_HEAD} bytes. Send fewer or shorter headers."
        error = {
            "message": said,
            "type": "invalid_request_error",
            "param": None,
            "code": _CODES[status],
        }
        body = msgspec.json.encode({"error": error})
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
