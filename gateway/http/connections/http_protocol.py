"""uvicorn's HTTP protocol with limits on heads, trailers and chunks, and with errors in OpenAI's envelope."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.http.connections.client_certificates import resumes_session_before, tls_extension
from gateway.http.connections.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.connections.connections import SendMonitor, ServingConfig, raw_error
from gateway.http.connections.joined_head import JoinedHeadTransport
from gateway.http.connections.unchunked import UnchunkedTransport

MAX_HEAD: Final = 65_536
"""Maximum number of bytes of a request's line and headers. It is the limit of h11, uvicorn's other parser; httptools
has none. Also the maximum number of bytes in a body that are not content: sizes and extensions of chunks, and
trailers."""
MAX_HEADERS: Final = 4096
"""Maximum number of headers and trailers of a request: many short ones take longer to read than their bytes suggest."""
MAX_SMALL_CHUNKS: Final = 65_536
"""Maximum number of pieces of a body, such as chunks, that have fewer than `_SMALL` bytes."""
_SMALL: Final = 64
MAX_PIPELINED: Final = 64
"""Maximum number of requests of one connection that wait for earlier requests to be answered."""
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_TOO_LONG: Final = (
    431,
    f"The request's line and headers are longer than {MAX_HEAD} bytes. Send fewer or shorter headers.",
)


class RefusedRequest(Exception):
    """Raised in a callback to stop the parser."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """Limits what a connection may send and how long it may take.

    A request whose line and headers are longer than `MAX_HEAD` is refused with 431, data that is not HTTP with 400, and
    a head that does not arrive in time with 408. A connection is closed if no request begins on it, or if its client
    does not read. If there are more connections than the server accepts, the one that has been idle longest is closed.
    If none is idle, the new connection is answered with 503.
    """

    __slots__ = (
        "_begun",
        "_connection",
        "_content",
        "_deadline",
        "_ended",
        "_head",
        "_headers",
        "_in_head",
        "_is_handshake",
        "_last_words",
        "_limits",
        "_problem",
        "_sending",
        "_small_chunks",
        "_tls",
        "_unanswered",
        "_unread",
        "_words_at",
    )
    # Slots, because CPython shares the keys of at most thirty attributes between instances' dictionaries: with more,
    # each connection takes a KiB more.

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.config, ServingConfig)
        self.access_log = self.config.access_log  # even if uvicorn's logger has a handler
        self._limits = self.config.limits
        self._sending = SendMonitor()
        self._head = 0
        """Number of bytes of the current head that the parser has reported."""
        self._headers = 0
        """Number of headers and trailers of the current request."""
        self._small_chunks = 0
        self._unread = 0
        """Number of bytes received since the parser last reported a part of a head or body. Includes an unfinished
        header."""
        self._in_head = True
        self._begun = False
        """Whether part of a head has been received."""
        self._ended = False
        self._content = False
        """Whether the data being parsed contains content of a body."""
        self._is_handshake = False
        """Whether the last head was a WebSocket handshake."""
        self._problem: tuple[int, str] | None = None
        """The status and the message of the refusal, if a callback has refused the request."""
        self._deadline: float | None = None
        """Event loop time by which the head, or the unread rest of a body, must be received. Applies only while no
        request is being answered."""
        self._unanswered = 0
        """Number of requests whose head is complete and whose answer is not."""
        self._tls: dict[object, object] | None = None
        """The value of the ASGI extension `tls`, if the client has a certificate."""
        self._last_words: bytes | None = None
        """The error response that ends the connection once at most `_words_at` requests are unanswered."""
        self._words_at = 0

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        joined = JoinedHeadTransport(transport, self.loop)
        super().connection_made(joined)
        self._connection = ClientConnection(joined, self.flow.resume_reading)
        if len(self.connections) > self._limits.most and not self._limits.close_idle():
            self._limits.refused += 1
            self._end(raw_error(503, "This server has too many connections. Try again later."))
            return
        since = self._limits.sessions_since
        if since and resumes_session_before(transport, since):
            transport.abort()
            return
        self._deadline = self.loop.time() + self._limits.head_timeout
        self._tls = tls_extension(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_idleness()
        super().connection_lost(exc)
        self._connection.lose()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.pause()
        self._connection.is_writable = False

    def resume_writing(self) -> None:
        super().resume_writing()
        self._sending.resume()
        self._connection.is_writable = not self._connection.is_lost

    def close_if_sent(self) -> bool:
        if self.transport.get_write_buffer_size():
            return False
        if not self.transport.is_closing():
            self.transport.close()
        return True

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its client does not send a request, or does not read the answer."""
        if self._sending.stalled(self.transport, now, self._limits.send_timeout):
            self.transport.abort()
        elif (
            self._deadline is None
            or now < self._deadline
            or self.transport.is_closing()
            or self._unanswered
        ):
            return
        elif self._begun:
            seconds = self._limits.head_timeout
            self._refuse(408, f"The request's line and headers did not arrive within {seconds:g} seconds.")  # fmt: skip
        else:
            self.transport.close()

    def _end_idleness(self) -> None:
        """Note that a request begins, or that the connection ends. Also cancels the keep-alive timer: if a connection
        is reset, uvicorn keeps it, and with it the last request."""
        self._limits.idle.pop(self, None)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    # Receiving

    def data_received(self, data: bytes) -> None:
        if self._last_words is not None:
            return
        self._ended = self._content = False
        self._end_idleness()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            problem = "Invalid HTTP request received."
            self.logger.warning(problem)
            self._refuse(*(self._problem or (400, problem)))
        if self.transport.is_closing() or self._last_words is not None:
            return
        if self._in_head and self._deadline is None:
            self._deadline = self.loop.time() + self._limits.head_timeout
        # If a request or content has ended in this data, the bytes after it are counted with the next data.
        if not self._ended and not self._content:
            self._unread += len(data)
            if self._unread > MAX_HEAD:
                self._refuse(*_TOO_LONG)

    def _parse(self, data: bytes) -> None:
        """Parse `data`. Offers to upgrade to protocols other than WebSocket are ignored (RFC 9110, 7.8). The parser
        alone would skip such a request's body, or read it as the next request."""
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._is_handshake:
                    self.handle_websocket_upgrade()
                    return
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(RestOfRequest(self))
                # As in uvicorn: data after the last request is not an error.
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                # The first parser has skipped the body, which the second one reads.
                self.cycle.more_body = True
                self._in_head = self._ended = self._connection.has_whole_body = False
                data = head + data[upgrade.args[0] :]
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        """A head with only the headers that determine where the request's body ends, and whether another request may
        follow."""
        lines = [b"POST / HTTP/" + self.parser.get_http_version().encode()]
        lines += [b": ".join(each) for each in self.headers if each[0] in _FRAMING]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join((*lines, b"", b""))

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol. Refuses if a request is still being answered: its answer would
        be sent between the WebSocket's messages, and the keep-alive timeout would end the WebSocket."""
        self._ended = True  # the following data is not a head
        if self._unanswered:
            self._last_words = raw_error(400, "A WebSocket begins after the answers to the requests before it. Wait for them.")  # fmt: skip
            return
        assert isinstance(self.transport, JoinedHeadTransport)
        self.transport = self.transport.inner
        super().handle_websocket_upgrade()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_head = self._begun = True
        self._connection.has_whole_body = False
        self._head = self._unread = self._headers = self._small_chunks = 0
        super().on_message_begin()
        scope: Any = self.scope
        scope[SCOPE_KEY] = self._connection
        if self._tls is not None:
            scope["extensions"] = {"tls": self._tls}

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        if self._head > MAX_HEAD:
            self._stop(*_TOO_LONG)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + 4  # the colon, a space, and CRLF
        if self._head > MAX_HEAD:
            self._stop(*_TOO_LONG)
        self._headers += 1
        if self._headers > MAX_HEADERS:
            self._stop(431, f"The request has more than {MAX_HEADERS} headers. Send fewer.")
        if self._in_head:  # a trailer is not a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):
            self._read_target()
        self._in_head = self._begun = False
        self._deadline = None
        self._unread = 0
        before = self.cycle
        super().on_headers_complete()
        self._is_handshake = self.cycle is before
        if self._is_handshake:
            return
        self._unanswered += 1
        if self.parser.get_http_version() == "1.0":
            self.cycle.transport = UnchunkedTransport(self.transport)
        if self._unanswered > MAX_PIPELINED + 1:
            self._stop(400, f"More than {MAX_PIPELINED} requests wait on this connection. Wait for their answers.")  # fmt: skip

    def on_body(self, body: bytes) -> None:
        self._content = True
        self._unread = 0
        if len(body) < _SMALL:
            self._small_chunks += 1
            if self._small_chunks > MAX_SMALL_CHUNKS:
                self._stop(400, f"The body comes in more than {MAX_SMALL_CHUNKS} pieces of less than {_SMALL} bytes. Send larger chunks.")  # fmt: skip
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = self._ended = self._connection.has_whole_body = True
        self._deadline = None
        self._unread = 0

    # Answers

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        # The client may still be sending the body of a request that is answered already.
        self._deadline = None if self._in_head else self.loop.time() + self._limits.body_timeout
        super().on_response_complete()
        if self.cycle.body and self.cycle.response_complete:
            self.cycle.body = (
                bytearray()
            )  # the unread part would stay in memory until the next request
        if self._last_words is not None:
            if self._unanswered <= self._words_at:
                self._end(self._last_words)
        elif not self._unanswered and self._in_head and not self.transport.is_closing():
            self._limits.idle[self] = None

    def _refuse(self, status: int, message: str) -> None:
        """End the connection with an error. Requests before the refused one are answered first."""
        words = raw_error(status, message)
        wrong = 0 if self._in_head else 1  # a request with a refused body counts as unanswered
        if wrong and self.pipeline and self.pipeline[0][0] is self.cycle:
            self.pipeline.popleft()  # it waits for the answers before it, and is not to begin
            self._unanswered -= 1
            wrong = 0
        if self._unanswered > wrong:
            self._last_words, self._words_at = words, wrong
        elif self._unanswered and self.cycle.response_started:
            self.transport.close()
        else:
            self._end(words)

    def _end(self, words: bytes) -> None:
        if (
            not self.transport.is_closing()
        ):  # not closed already, by an answer that ends the connection, or by the client
            self.transport.write(words)
            self.transport.close()

    # Limits

    def _read_target(self) -> None:
        """Check a target that is not a path. If it is an absolute URL, its host replaces the header `Host` (RFC 9112,
        3.2.2)."""
        if self.url.partition(b"://")[0].lower() not in (b"http", b"https"):
            self._stop(400, "The request's target is not a path.")
        host = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
        if httptools.parse_url(self.url).path is None:
            self._stop(400, "The request's target has no path.")
        self.headers[:] = [each for each in self.headers if each[0] != b"host"]
        self.headers.append((b"host", host))

    def _stop(self, status: int, message: str) -> None:
        """Refuse the request: stop the parser. `data_received` then sends the error."""
        self._problem = (status, message)
        raise RefusedRequest


class RestOfRequest:
    """Receives the callbacks of a second parser, and forwards them to `protocol`. The first head is not forwarded: it
    repeats that of the current request."""

    def __init__(self, protocol: LimitedHttpProtocol) -> None:
        self._protocol = protocol
        self._past_head = False
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if self._past_head:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._past_head:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._past_head:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._past_head:
            self._protocol.on_headers_complete()
        self._past_head = True
