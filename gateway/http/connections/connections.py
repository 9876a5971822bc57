"""Limits of connections: their number, the time for sending a request's head, and the time for reading an answer."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import OrderedDict
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, Protocol

import msgspec
import uvicorn

from gateway.config import ServerConfig
from gateway.http.connections.request_starts import RequestStarts

logger = logging.getLogger("gateway.http.connections.connections")

SWEEP_SECONDS: Final = 1.0
_SLOWEST: Final = 1024
"""Minimum rate at which a client that is behind must read, in bytes per second."""
_OTHER_FILES: Final = 256
"""Number of open files that are reserved for purposes other than connections."""
_CODES: Final = {
    400: "invalid_request",
    408: "request_timeout",
    431: "request_headers_too_large",
    503: "too_many_connections",
}


class WatchedConnection(Protocol):
    """A connection whose deadlines are checked once a second."""

    def check_deadlines(self, now: float) -> None:
        """Close the connection if it has missed a deadline. `now` is the event loop's time."""
        ...


class IdleConnection(Protocol):
    """A connection between two requests."""

    def close_if_sent(self) -> bool:
        """Close the connection. Returns False, and does nothing, if part of the last answer is still unsent: the
        connection would stay open until the client has read that part."""
        ...


class Connections:
    """The limits of a server's connections, and the check of their deadlines.

    All connections are checked once a second. Timers would cost more, because each request would start and stop one.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.head_timeout = config.head_timeout
        self.body_timeout = config.body_timeout
        self.send_timeout = config.send_timeout
        self.most = _connection_limit(config.max_connections)
        self.idle: OrderedDict[IdleConnection, None] = OrderedDict()
        """Connections whose last request is answered and whose next request has not begun, longest idle first."""
        self.refused = 0
        """Number of connections refused since the last check because there were too many."""
        self.sessions_since = 0.0
        """Unix time of the last change of the authorities for client certificates. Older TLS sessions are not
        resumed."""
        self._closed_early = 0
        """Number of idle connections closed since the last check because there were too many."""
        self._last = 0.0
        self._skipped = False

    def close_idle(self) -> bool:
        """Close the connection that has been idle longest and whose client has read its last answer. Returns False if
        there is none."""
        while self.idle:
            connection, _ = self.idle.popitem(last=False)
            if connection.close_if_sent():
                self._closed_early += 1
                return True
        return False

    def check(self, connections: Iterable[WatchedConnection], now: float) -> None:
        """Close the connections that have missed a deadline. To be called once every `SWEEP_SECONDS`."""
        if self.refused:
            logger.warning(
                "%d connections were refused: there are %d already (max_connections)",
                self.refused, self.most,
            )  # fmt: skip
            self.refused = 0
        if self._closed_early:
            logger.info(
                "%d idle connections were closed before keep_alive has passed: there may be %d (max_connections)",
                self._closed_early, self.most,
            )  # fmt: skip
            self._closed_early = 0
        late = now - self._last > 2 * SWEEP_SECONDS
        self._last = now
        if late and not self._skipped:
            # The process was suspended, and has not yet read what clients sent in the meantime. A process that is
            # merely busy is late at every check, so only one check is skipped.
            self._skipped = True
            return
        self._skipped = False
        for connection in tuple(connections):
            connection.check_deadlines(now)


class ServingConfig(uvicorn.Config):
    """uvicorn's configuration, with the objects that the protocols of this package need."""

    limits: Connections
    starts: RequestStarts


class SendMonitor:
    """Detects that a client has stopped reading what is sent to it."""

    __slots__ = ("_since", "_unsent", "is_paused")

    def __init__(self) -> None:
        self.is_paused = False
        """Whether the write buffer is full."""
        self._since: float | None = None
        self._unsent = 0

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._since = None  # the buffer is about to be filled again: measure from the next pause

    def stalled(self, transport: asyncio.Transport, now: float, seconds: float) -> bool:
        """Whether the client has read less than 1 KiB a second for `seconds`.

        Nothing is added to the write buffer while it is full or the connection is closing. Only then does its size show
        how much the client reads.
        """
        if not (self.is_paused or transport.is_closing()):
            self._since = None
            return False
        unsent = transport.get_write_buffer_size()
        if self._since is None:
            self._since, self._unsent = now, unsent
        elif now - self._since >= seconds:
            if self._unsent - unsent < _SLOWEST * seconds:
                return True
            self._since, self._unsent = now, unsent
        return False


def _connection_limit(configured: int) -> int:
    """`max_connections`, reduced to what the process's limit of open files allows."""
    may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if may_open == resource.RLIM_INFINITY or configured + _OTHER_FILES <= may_open:
        return configured
    most = max(may_open - _OTHER_FILES, may_open // 2)
    logger.info(
        "max_connections is %d, and this process may open %d files: it takes %d connections. Raise its limit of open files "
        "(ulimit -n) for more.",
        configured, may_open, most,
    )  # fmt: skip
    return most


def raw_error(status: int, message: str) -> bytes:
    """A complete HTTP response with an error in OpenAI's envelope, which closes the connection. For errors of the
    connection, which never reach the application."""
    kind = "service_unavailable_error" if status == 503 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": _CODES[status]}
    body = msgspec.json.encode({"error": error})
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    if status == 503:
        lines.append("retry-after: 1")
    return "\r\n".join((*lines, "", "")).encode("ascii") + body
