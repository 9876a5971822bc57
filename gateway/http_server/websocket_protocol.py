"""uvicorn's WebSocket protocol with limits on time and fragments, and without what its library logs of messages."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import SecurityError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from gateway.http_server.client_certificates import tls_extension
from gateway.http_server.connections import SendMonitor, ServingConfig, raw_error

MAX_FRAGMENTS: Final = 16_384
"""Frames of one message: empty ones do not count towards its size."""
FRAMES_AT_ONCE: Final = 500
"""Frames with little content that a connection may send at once: reading one takes as long as reading some KiB. Control frames, fragments and
messages count alike; a frame that is not a control frame counts less the longer it is, and not at all from `_LONG` bytes on."""
FRAMES_PER_SECOND: Final = 50
"""Frames with little content that a connection may send in the long run."""
_LONG: Final = 256
_FEWEST, _MOST = 512, 8192
"""Bytes that are read at once: fewer where there are many frames in them."""
_DATA: Final = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class _Conversation(ServerProtocol):
    """Keeps the answer to the latest ping only, instead of sending one for each (RFC 6455, 5.5.3)."""

    pong: Frame | None = None

    def send_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG:
            self.pong = frame
        else:
            super().send_frame(frame)

    def take_pong(self) -> list[bytes]:
        """What answers the pings so far."""
        pong, self.pong = self.pong, None
        if pong is None or self.state is not State.OPEN:
            return []
        super().send_frame(pong)
        return self.data_to_send()


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Closes a connection whose messages do not arrive in time, which has too many frames for what they contain, or whose client does
    not read. What comes after a message waits until the application has taken it."""

    conn: _Conversation
    _message_since: float | None = None
    """Since when a part of a message is here, and its rest is not."""
    _rest = b""
    """What was received; not all of it is read yet."""
    _at = 0
    """How much of that is read."""
    _at_once = _FEWEST
    _frames_left: float = FRAMES_AT_ONCE
    _frames_counted_at: float | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.config, ServingConfig)
        self._limits = self.config.limits
        self._sending = SendMonitor()
        # At the level `debug` the library logs all headers and messages: keys, and what users write.
        self.conn = _Conversation(max_size=self.config.ws_max_size, logger=self.conn.logger)
        self.conn.debug = False

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                # The library has refused the request, and uvicorn does not send its answer.
                self._end_handshake()
            return
        self._rest = self._rest[self._at :] + data if self._rest else data
        self._at = 0
        self._read()

    def _read(self) -> None:
        """Read what was received, up to the end of a message that the application has not taken."""
        rest = self._rest
        while self._at < len(rest) and not (self.read_paused or self.close_sent):
            piece = rest[self._at : self._at + self._at_once]
            self._at += len(piece)
            self._at_once = min(2 * self._at_once, _MOST)
            super().data_received(piece)
        if self.close_sent and self._at < len(rest):
            # After the closing handshake has begun, the library passes over everything but its end.
            super().data_received(rest[self._at :])
            self._at = len(rest)
        if self._at == len(rest):
            self._rest, self._at = b"", 0
        self._answer_ping()
        if self._message_since is None and (self.frames or self.conn.reader.buffer):
            self._message_since = self.loop.time()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._rest and not self.read_paused:
            self._read()
        return message

    def handle_events(self) -> None:
        spent = 0.0
        for event in self.conn.events:
            if isinstance(event, Frame):
                long = event.opcode in _DATA and len(event.data) >= _LONG
                if not long:
                    spent += 1 - (len(event.data) / _LONG if event.opcode in _DATA else 0)
        if spent:
            self._at_once = _FEWEST
            now = self.loop.time()
            before = self._frames_counted_at or now
            self._frames_counted_at = now
            regained = self._frames_left + FRAMES_PER_SECOND * (now - before)
            self._frames_left = min(FRAMES_AT_ONCE, regained) - spent
            if self._frames_left < 0 and not self.close_sent:
                self._fail(
                    1008,
                    f"more than {FRAMES_AT_ONCE} frames at once with little content, or {FRAMES_PER_SECOND} a second",
                )
                return
        super().handle_events()

    async def run_asgi(self) -> None:
        app = self.app

        async def answered(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)
            if self.initial_response is not None:
                self.handshake_complete = (
                    True  # or uvicorn logs an error for each handshake that is refused
                )

        tls = tls_extension(self.transport)
        if tls is not None:
            self.scope["extensions"]["tls"] = tls
        self.app = answered
        await super().run_asgi()

    def send_receive_event_to_app(self) -> None:
        self._message_since = None
        if self.curr_msg_data_type == "text":
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                # uvicorn's way logs an error of the server, with a traceback.
                self._fail(1007, "a text that is not UTF-8")
                return
        super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:
            self._fail(1009, f"a message of more than {MAX_FRAGMENTS} fragments")
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """It is answered once all that was received is read."""

    def _answer_ping(self) -> None:
        # Not while the client does not read.
        if (
            self.conn.pong is not None
            and self.writable.is_set()
            and not self.transport.is_closing()
        ):
            self.transport.write(b"".join(self.conn.take_pong()))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._sending.resume()
        self._answer_ping()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its client does not end a message, or does not read."""
        limits = self._limits
        if self._sending.stalled(self.transport, now, limits.send_timeout):
            self.transport.abort()
        elif self._message_since is None or self.transport.is_closing():
            return
        elif self.read_paused:
            self._message_since = now  # the client waits for us
        elif now - self._message_since > limits.body_timeout:
            self._fail(1008, f"a message did not arrive within {limits.body_timeout:g} seconds")

    def shutdown(self) -> None:
        """Close the connection, because the server stops. uvicorn's raises an error where the client has begun to close it and what
        was sent before has not left yet, and the server's stop ended there."""
        if not self.transport.is_closing():
            super().shutdown()

    def handle_connect(self, event: Request) -> None:
        response = self.conn.accept(event)
        if response.status_code == 101:
            super().handle_connect(event)
            return
        self.handshake_initiated = self.close_sent = self.handshake_complete = True
        self.transport.write(raw_error(400, bytes(response.body).decode().strip()))
        self.transport.close()

    def _end_handshake(self) -> None:
        self.close_sent = self.handshake_complete = True
        refused = self.conn.handshake_exc
        # Older versions of the library wrap what it is about.
        long = isinstance(refused, SecurityError) or isinstance(
            getattr(refused, "__cause__", None), SecurityError
        )
        problem = (
            "The handshake's headers are too many or too long."
            if long
            else "The handshake is not a valid request."
        )
        self.transport.write(raw_error(431 if long else 400, problem))
        self.transport.close()

    def _fail(self, code: int, reason: str) -> None:
        self.frames = []
        self.conn.fail(code, reason)
        self.handle_parser_exception()
