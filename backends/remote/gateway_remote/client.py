"""HTTP client for replicas: pools connections and interprets responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from gateway.sdk import ConfigurationError, InvalidRequest
from gateway.sdk.http import accept_private_authorities, checked_headers, proxy_for
from gateway_remote.address import Address, address_of
from gateway_remote.connection import ReplicaConnection
from gateway_remote.failures import (
    ReplicaBusy,
    ReplicaFailure,
    failure_wait,
    read_error,
    refusal,
    retry_after_seconds,
    too_large,
)
from gateway_remote.happy_eyeballs import addresses_of, first_connected
from gateway_remote.reading import reader_of
from gateway_remote.replica import Endpoint
from gateway_remote.stalls import StallMonitor
from gateway_remote.tunnels import tunnelled

_ERROR_BYTES = 64 * 1024
_ANSWER_BYTES = 16 * 1024 * 1024
_KEEP_ALIVE = 4.0
"""Idle time limit in seconds. uvicorn, which vLLM and SGLang use, closes idle connections after five."""
_HTTP_END = 1.0
"""Seconds for the HTTP end of a response whose content is complete."""

T = TypeVar("T")
Meaning: TypeAlias = Callable[[int, bytes, str | None], Exception]
"""Maps status, body and Retry-After of an unsuccessful response to an exception."""


class UndeliveredError(ReplicaFailure):
    """Connecting failed; the replica has not received the request."""


class StreamedReply:
    """A streamed response. Must be closed with `close`."""

    __slots__ = ("_connection", "_done", "_end", "_since", "_watch", "overdue", "take")

    def __init__(
        self,
        connection: ReplicaConnection,
        watch: StallMonitor,
        done: Callable[[ReplicaConnection, bool], None],
    ) -> None:
        """`done` takes the connection back; its second argument is that of `close`."""
        self._connection = connection
        self.take = connection.take
        """Returns the data received since the last call; see `ReplicaConnection.take`."""
        self._watch = watch
        self._done: Callable[[ReplicaConnection, bool], None] | None = done
        self._since: float | None = None
        self._end: asyncio.TimerHandle | None = None
        self.overdue = False
        """Whether the end of the body has not come in the time that `expect_end` gave it."""

    @property
    def waiting_since(self) -> float | None:
        """Time at which the current wait for data began; None if nothing waits."""
        return self._since if self._connection.awaited else None

    def watch(self) -> None:
        """Start stall detection. It is off before the first token, when the request may be queued."""
        self._watch.add(self)

    def arrival(self, arrived: Callable[[], bool] | None = None) -> asyncio.Future[None]:
        """A future that completes when `take` returns something other than an empty result. It is awaited at once. `arrived`: see
        `ReplicaConnection.changed`."""
        self.wait_anew()
        return self._connection.changed(arrived)

    def wait_anew(self) -> None:
        """Begin a new wait for data."""
        self._since = self._watch.now

    def stall(self) -> None:
        """End the stream because it stalled; a waiting `read` raises."""
        self._connection.fail("it fell silent in the middle of a stream")

    def expect_end(self, seconds: float) -> None:
        """Give the body `seconds` to end. Then `overdue` is set and the reader is woken. Does nothing after the first time."""
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self.overdue = True
        self._connection.wake()

    async def finish(self) -> None:
        """Wait for the HTTP end of a body whose content is complete, so that the connection can be reused at once."""
        await read_end(self._connection)

    def close(self, *, content_complete: bool = False) -> None:
        """Release the connection. It is kept if the response is complete, otherwise closed, which aborts the request.
        `content_complete`: only the HTTP end is missing, and the connection is kept if that comes soon."""
        self._watch.remove(self)
        self._connection.arrived = None
        if self._end is not None:
            self._end.cancel()
        done, self._done = self._done, None
        if done is not None:
            done(self._connection, content_complete)


class ReplicaClient:
    """Sends requests to replicas. Call `close` at the end, and `trim` periodically."""

    def __init__(
        self,
        watch: StallMonitor,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        tls: ssl.SSLContext,
        clock: Callable[[], float],
        meaning: Meaning | None = None,
    ) -> None:
        """`meaning` maps an unsuccessful response to the exception that `start` raises. Default: `error_of_engine`."""
        self._watch = watch
        self._meaning = meaning or error_of_engine
        self._headers = dict(headers)
        self._connect_timeout = connect_timeout
        self._tls = tls
        self._clock = clock
        self._idle: dict[Address, list[ReplicaConnection]] = {}
        self._open: set[ReplicaConnection] = set()
        self._ending: set[asyncio.Task[None]] = set()
        """Connections whose HTTP end is awaited."""
        self._closed = False
        self.connections_opened = 0

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of every request."""
        return self._headers

    def close(self) -> None:
        """Close all connections. Open streams fail."""
        self._closed = True
        for task in self._ending:
            task.cancel()
        for connection in tuple(self._open):
            connection.close()
        self._open.clear()
        self._idle.clear()

    def trim(self) -> None:
        """Close connections that have been idle for too long."""
        oldest = self._clock() - _KEEP_ALIVE
        for address, idle in tuple(self._idle.items()):
            kept = [each for each in idle if each.usable and each.idle_since >= oldest]
            for each in idle:
                if each not in kept:
                    self._drop(each)
            if kept:
                self._idle[address] = kept
            else:
                del self._idle[address]

    async def start(
        self, where: Endpoint, path: str, body: bytes, headers: Mapping[str, str]
    ) -> StreamedReply:
        """POST `body` and return when the head of a successful response has arrived.

        Raises `InvalidRequest` if the request is rejected, else `ReplicaFailure`.
        """
        address = address_of(where)
        message = self._message(address, "POST", path, body, headers)
        connection, status = await self._exchange(address, message)
        if status == 200:
            return StreamedReply(connection, self._watch, self._keeper(address))
        retry_after = connection.retry_after
        try:
            async with asyncio.timeout(5.0):
                said = await _read_up_to(connection, _ERROR_BYTES)
        except (TimeoutError, ReplicaFailure):
            said = b""
        finally:
            self._keep(address, connection)
        raise self._meaning(status, said, retry_after)

    async def get(self, where: Endpoint, path: str, kind: type[T], *, within: float) -> T:
        """The decoded JSON response of a GET. Raises `ReplicaFailure` for an unsuccessful or malformed response."""
        status, body = await self._call(where, "GET", path, b"", within)
        if status != 200:
            raise ReplicaFailure(f"{path} answers {status}")
        try:
            return reader_of(kind)(body)
        except msgspec.DecodeError as error:
            raise ReplicaFailure(f"what {path} answers cannot be read: {error}") from error

    async def answer(self, where: Endpoint, path: str, *, within: float) -> tuple[int, bytes]:
        """Status and body of a GET. Raises `ReplicaFailure` if there is no response."""
        return await self._call(where, "GET", path, b"", within)

    async def status(
        self, where: Endpoint, path: str, *, within: float, body: bytes | None = None
    ) -> int:
        """Status of a GET, or of a POST of `body`. Raises `ReplicaFailure` if there is no response."""
        method = "GET" if body is None else "POST"
        return (await self._call(where, method, path, body or b"", within))[0]

    async def post(
        self, where: Endpoint, path: str, body: bytes, *, within: float
    ) -> tuple[int, bytes]:
        """Status and body of a POST. Raises `ReplicaFailure` if there is no response."""
        return await self._call(where, "POST", path, body, within)

    async def _call(
        self, where: Endpoint, method: str, path: str, body: bytes, within: float
    ) -> tuple[int, bytes]:
        address = address_of(where)
        connection: ReplicaConnection | None = None
        try:
            async with asyncio.timeout(within):
                message = self._message(address, method, path, body, {})
                connection, status = await self._exchange(address, message)
                return status, await _read_up_to(connection, _ANSWER_BYTES)
        except TimeoutError as error:
            raise ReplicaFailure(f"no answer on {path} in {within:g} seconds") from error
        finally:
            if connection is not None:
                self._keep(address, connection)

    def _message(
        self, address: Address, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> bytes:
        lines = [
            f"{method} {address.prefix}{path} HTTP/1.1",
            f"Host: {address.header}",
            "Accept-Encoding: identity",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        # Trace headers come from clients. A line end in one would inject another header.
        lines += (
            f"{name}: {value}"
            for name, value in (self._headers | dict(headers)).items()
            if value.isprintable()
        )
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body

    async def _exchange(self, address: Address, message: bytes) -> tuple[ReplicaConnection, int]:
        """Send a request. Returns its connection and the status of the response."""
        while True:
            connection = self._take(address) or await self._connect(address)
            whole = False
            try:
                connection.send(message)
                status = await connection.head()
                whole = True
            except ReplicaFailure:
                # A server may close an idle connection just as it is reused. That is not a failure.
                if not connection.used:
                    raise
            finally:
                if not whole:
                    self._drop(connection)
            if whole:
                return connection, status

    def _take(self, address: Address) -> ReplicaConnection | None:
        """The most recently used idle connection, or None."""
        idle = self._idle.get(address)
        oldest = self._clock() - _KEEP_ALIVE
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                connection.used = True
                return connection
            self._drop(connection)
        return None

    async def _connect(self, address: Address) -> ReplicaConnection:
        if self._closed:
            raise ReplicaFailure("the gateway is shutting down")
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._connected(address)
        except TimeoutError as error:
            reason = f"no connection in {self._connect_timeout:g} seconds"
            raise UndeliveredError(reason) from error
        except ConfigurationError as error:
            raise UndeliveredError(f"no connection: {error}") from error
        except (OSError, UnicodeError) as error:
            # UnicodeError: an invalid host name.
            raise UndeliveredError(
                f"no connection: {getattr(error, 'strerror', None) or error}"
            ) from error
        self.connections_opened += 1
        self._open.add(connection)
        return connection

    async def _connected(self, address: Address) -> ReplicaConnection:
        """A connection to the first address that accepts one, through a proxy if the environment names one."""
        proxy = proxy_for(address.host, also_known_as=[address.name]) if address.tls else None
        if proxy is not None:
            return await tunnelled(proxy, address, self._tls)
        loop = asyncio.get_running_loop()

        async def connect(host: str) -> ReplicaConnection:
            _, connection = await loop.create_connection(
                ReplicaConnection,
                host,
                address.port,
                ssl=self._tls if address.tls else None,
                server_hostname=address.name if address.tls else None,
            )
            return connection

        hosts = await addresses_of(address.host, address.port)
        return await first_connected(hosts, connect, ReplicaConnection.close)

    def _keeper(self, address: Address) -> Callable[[ReplicaConnection, bool], None]:
        def keep(connection: ReplicaConnection, content_complete: bool) -> None:
            if content_complete and not connection.complete and not self._closed:
                task = asyncio.create_task(self._end(address, connection))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
            else:
                self._keep(address, connection)

        return keep

    async def _end(self, address: Address, connection: ReplicaConnection) -> None:
        """Read the HTTP end of a body whose content is complete, so that the connection can be reused."""
        try:
            await read_end(connection)
        finally:
            self._keep(address, connection)

    def _keep(self, address: Address, connection: ReplicaConnection) -> None:
        """Return the connection to the pool if it can be reused."""
        if connection.idle and not self._closed:
            connection.idle_since = self._clock()
            self._idle.setdefault(address, []).append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: ReplicaConnection) -> None:
        self._open.discard(connection)
        connection.close()


async def read_end(connection: ReplicaConnection) -> None:
    """Read the HTTP end of a body whose content is complete, for a while."""
    try:
        async with asyncio.timeout(_HTTP_END):
            while await connection.read():
                pass
    except (TimeoutError, ReplicaFailure):
        pass  # The content is complete; failing to reuse the connection does no harm.


async def _read_up_to(connection: ReplicaConnection, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < limit and (part := await connection.read()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def error_of_engine(status: int, body: bytes, retry_after: str | None) -> Exception:
    """The exception for an unsuccessful response of a self-hosted engine: the client's error, or a replica failure that
    another replica may avoid."""
    error = read_error(body, status)
    if status in (400, 413, 422) or too_large(error):
        return refusal(error)
    if status == 404 and error.param == "model":
        # An adapter that cannot be loaded or was removed; other replicas would respond the same.
        return InvalidRequest(error.message, param="model", code="model_not_found")
    said = f"HTTP {status}: {error.message[:300]}"
    if status == 429:
        return ReplicaBusy(said, retry_after_seconds(retry_after))
    return ReplicaFailure(said, failure_wait(retry_after))


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    """The TLS context. Raises OSError for a CA file that cannot be read."""
    context = accept_private_authorities(ssl.create_default_context(cafile=ca_file))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def headers_of(fixed: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """Headers sent with every request. Raises `ConfigurationError` for one that cannot be sent."""
    fixed = checked_headers(fixed)
    return {**fixed, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
