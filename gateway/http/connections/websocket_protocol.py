"""uvicorn's WebSocket protocol with limits on time, frames and fragments, and errors in OpenAI's envelope."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import SecurityError
from websockets.http11 import Request

from gateway.http.connections.client_certificates import tls_extension
from gateway.http.connections.connections import SendMonitor, ServingConfig, raw_error
from gateway.http.connections.websocket_frames import CONTINUATION, PING, Frame, frame_at

MAX_FRAGMENTS: Final = 16_384
"""Maximum number of frames of one message. Needed because empty frames do not count towards its size."""
FRAMES_AT_ONCE: Final = 500
"""Maximum number of frames with little content in a burst. Reading such a frame takes as long as reading some KiB.
Control frames, fragments and whole messages count equally. A data frame counts less the longer it is, and not at all
from `_LONG` bytes on."""
FRAMES_PER_SECOND: Final = 50
"""Rate of frames with little content that a connection may sustain."""
_LONG: Final = 256


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Closes a connection if its messages do not arrive in time, if it sends too many frames with little content, or if
    its client does not read. Data after a message waits until the application has received that message. If several
    pings arrive together, only the latest is answered (RFC 6455, 5.5.3)."""

    _message_since: float | None = None
    """Event loop time at which the unfinished message, or frame, began to arrive."""
    _data = b""
    """Received data, part of which may not have been passed to uvicorn yet."""
    _at = 0
    """Number of bytes of `_data` that have been passed to uvicorn."""
    _payload_left = 0
    """Number of bytes still to come of a frame whose beginning has been passed to uvicorn."""
    _ends_message = False
    """Whether the current frame ends its message."""
    _fragments = 0
    """Number of frames of the unfinished message."""
    _ping = b""
    """The latest unanswered ping frame; empty if there is none."""
    _frames_left: float = FRAMES_AT_ONCE
    _frames_counted_at: float | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.config, ServingConfig)
        self._limits = self.config.limits
        self._sending = SendMonitor()
        self.conn.debug = False  # otherwise the library logs all headers and messages, including keys and users' texts

    # Connections

    def pause_writing(self) -> None:
        super().pause_writing()
        self._sending.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._sending.resume()
        self._answer_ping()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its client does not complete a message in time, or does not read."""
        limits = self._limits
        if self._sending.stalled(self.transport, now, limits.send_timeout):
            self.transport.abort()
        elif self._message_since is None or self.transport.is_closing():
            return
        elif self.read_paused:
            self._message_since = now  # the client waits for the server
        elif now - self._message_since > limits.body_timeout:
            self._fail(1008, f"a message did not arrive within {limits.body_timeout:g} seconds")

    def shutdown(self) -> None:
        """Close the connection because the server stops. uvicorn's method raises an error if the client is closing the
        connection while data is still unsent, which would end the server's shutdown early."""
        if not self.transport.is_closing():
            super().shutdown()

    # The handshake

    def handle_connect(self, event: Request) -> None:
        response = self.conn.accept(event)
        if response.status_code != 101:
            self._refuse(400, bytes(response.body).decode().strip())
            return
        super().handle_connect(event)
        if (tls := tls_extension(self.transport)) is not None:
            self.scope["extensions"]["tls"] = tls

    def _refuse_unparsed(self) -> None:
        """Answer a handshake that the WebSocket library has refused. uvicorn does not send the library's answer."""
        refused = self.conn.handshake_exc
        # Older versions of the library wrap the cause in another error.
        long = isinstance(refused, SecurityError) or isinstance(
            getattr(refused, "__cause__", None), SecurityError
        )
        if long:
            self._refuse(431, "The handshake's headers are too many or too long.")
        else:
            self._refuse(400, "The handshake is not a valid request.")

    def _refuse(self, status: int, message: str) -> None:
        self.handshake_initiated = self.close_sent = self.handshake_complete = True
        self.transport.write(raw_error(status, message))
        self.transport.close()

    def start_keepalive(self) -> None:
        """Called when the handshake has been accepted. A ping may have arrived before."""
        super().start_keepalive()
        self._answer_ping()

    async def run_asgi(self) -> None:
        app = self.app

        async def answered(scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)
            if self.initial_response is not None:
                # Otherwise uvicorn logs an error for each refused handshake.
                self.handshake_complete = True

        self.app = answered
        await super().run_asgi()

    # Receiving

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:
                self._refuse_unparsed()
            return
        self._data = self._data[self._at :] + data if self._data else data
        self._at = 0
        self._read()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._data and not self.read_paused:
            self._read()
        return message

    def _read(self) -> None:
        """Pass frames to uvicorn, up to the end of a message that the application has not received yet."""
        while not (self.read_paused or self.close_sent) and self._read_frame():
            pass
        if self.close_sent and self._at < len(self._data) and not self.transport.is_closing():
            # Once the closing handshake has begun, the library ignores everything but its completion.
            self._pass_on(len(self._data))
        if self._at >= len(self._data):
            self._data, self._at = b"", 0
        if not (self._data or self._payload_left or self._fragments):
            self._message_since = None
        elif self._message_since is None:
            self._message_since = self.loop.time()
        self._answer_ping()

    def _read_frame(self) -> bool:
        """Pass on the next frame, or the part of it that has arrived. Returns False if more data is needed, or if a
        limit has closed the connection."""
        here = len(self._data)
        if self._payload_left:
            if self._at == here:
                return False
            end = min(here, self._at + self._payload_left)
            self._payload_left -= end - self._at
        else:
            frame = frame_at(self._data, self._at)
            if frame is None or (frame.opcode == PING and frame.end > here):
                return False
            if not self._is_within_limits(frame):
                return False
            if frame.opcode == PING:
                self._ping, self._at = self._data[self._at : frame.end], frame.end
                return True
            end = min(here, frame.end)
            if end < frame.end:
                self._answer_ping()  # now, because it cannot be passed on within a frame
            self._payload_left = frame.end - end
            self._ends_message = frame.is_final and not frame.is_control
        if self._ends_message and not self._payload_left:
            self._fragments, self._message_since = 0, None
        self._pass_on(end)
        return True

    def _pass_on(self, end: int) -> None:
        """Pass the received data up to `end` to uvicorn."""
        part = self._data[self._at : end]
        self._at = end
        super().data_received(part)

    def _answer_ping(self) -> None:
        """Let uvicorn answer the latest ping. Waits if a frame is incomplete, or if the client is slow to read."""
        if self._ping and not (
            self._payload_left
            or not self.handshake_complete
            or self._sending.is_paused
            or self.close_sent
            or self.transport.is_closing()
        ):
            ping, self._ping = self._ping, b""
            super().data_received(ping)

    def send_receive_event_to_app(self) -> None:
        """Close the connection if a text is not UTF-8. uvicorn's method would also log a server error with a
        traceback."""
        if self.curr_msg_data_type == "text":
            self.frames = [b"".join(self.frames)]
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:
                self._fail(1007, "a text that is not UTF-8")
                return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Close the connection. Before the handshake is accepted there is no WebSocket, so no code is sent."""
        if self.handshake_complete:
            super().handle_parser_exception()
        else:
            self.transport.abort()

    # Limits

    def _is_within_limits(self, frame: Frame) -> bool:
        """Count a frame. Returns False, and closes the connection, if there are too many."""
        if not frame.is_control:
            self._fragments = self._fragments + 1 if frame.opcode == CONTINUATION else 1
            if self._fragments > MAX_FRAGMENTS:
                self._fail(1009, f"a message of more than {MAX_FRAGMENTS} fragments")
                return False
            if frame.length >= _LONG:
                return True
        now = self.loop.time()
        before = self._frames_counted_at or now
        self._frames_counted_at = now
        regained = self._frames_left + FRAMES_PER_SECOND * (now - before)
        spent = 1.0 if frame.is_control else 1 - frame.length / _LONG
        self._frames_left = min(FRAMES_AT_ONCE, regained) - spent
        if self._frames_left < 0:
            self._fail(1008, f"more than {FRAMES_AT_ONCE} frames at once with little content, or {FRAMES_PER_SECOND} a second")  # fmt: skip
        return self._frames_left >= 0

    def _fail(self, code: int, reason: str) -> None:
        self.frames = []
        self._data, self._at = b"", 0
        if self.handshake_complete:
            self.conn.fail(code, reason)
        self.handle_parser_exception()
