"""uvicorn's WebSocket protocol with limits on time and fragments, and without what its library logs of messages."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import SecurityError
from websockets.frames import Frame
from websockets.http11 import Request

from gateway.uvicorn_internals.client_certificates import tls_extension
from gateway.uvicorn_internals.connections import SendMonitor, ServingConfig, raw_error

MAX_FRAGMENTS: Final = 16_384
"""Frames of one message: empty ones do not count towards its size."""


class LimitedWebSocketProtocol(WebSocketsSansIOProtocol):
    """Closes a connection whose messages do not arrive in time, or whose client does not read."""

    _message_since: float | None = None
    """Since when a part of a message is here, and its rest is not."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(self.config, ServingConfig)
        self._limits = self.config.limits
        self._send_watch = SendMonitor()
        self._times_resumed = 0
        # At the level `debug` the library logs all headers and messages: keys, and what users write.
        self.conn.debug = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated:
            # The library has refused the request, and uvicorn does not send its answer.
            self._end_handshake()
            return
        if self._message_since is None and (self.frames or self.conn.reader.buffer):
            self._message_since = self.loop.time()

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
        if self.writable.is_set():
            super().handle_ping()
        else:
            # The client does not read: an answer to each of its pings would fill the memory.
            self.conn.data_to_send()

    def resume_writing(self) -> None:
        self._times_resumed += 1
        super().resume_writing()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its client does not end a message, or does not read."""
        limits = self._limits
        paused = not self.writable.is_set()
        if self._send_watch.stalled(
            self.transport, paused, now, limits.send_timeout, resumed=self._times_resumed
        ):
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
