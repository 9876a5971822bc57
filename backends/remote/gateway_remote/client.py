"""HTTP to replicas: connections that are kept and used again, and what answers mean."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from gateway.errors import InvalidRequest
from gateway_remote.address import Address, address_of
from gateway_remote.connection import Connection
from gateway_remote.failures import (
    ReplicaBusy,
    ReplicaFailure,
    read_error,
    refusal,
    too_large,
)
from gateway_remote.replica import Endpoint
from gateway_remote.stalls import StallWatch

_ERROR_BYTES = 64 * 1024
_ANSWER_BYTES = 16 * 1024 * 1024
_KEEP_ALIVE = 4.0
"""Seconds: uvicorn, on which vLLM and SGLang run, closes idle connections after five."""

T = TypeVar("T")
Meaning: TypeAlias = Callable[[int, bytes, str | None], Exception]
"""What an answer that is no success means, by its status, its body and its Retry-After."""


class UndeliveredError(ReplicaFailure):
    """No connection: the replica has not seen the request."""


class Reply:
    """A stream that a replica answers with. `close` it in any case."""

    __slots__ = ("_connection", "_done", "_watch", "take", "waiting_since")

    def __init__(
        self, connection: Connection, watch: StallWatch, done: Callable[[Connection], None]
    ) -> None:
        self._connection = connection
        self.take = connection.take
        """What has arrived since the last call; see `Connection.take`."""
        self._watch = watch
        self._done: Callable[[Connection], None] | None = done
        self.waiting_since: float | None = None
        """When the wait for data began, if anybody waits."""

    def watch(self) -> None:
        """From now on silence is a failure. Before the first token it may just be a queue."""
        self._watch.add(self)

    async def arrival(self) -> None:
        """Until `take` has something else to say than nothing."""
        self.waiting_since = self._watch.now
        await self._connection.changed()
        self.waiting_since = None

    def stall(self) -> None:
        """Nothing has come for too long: end it; a waiting `read` raises."""
        self._connection.fail("it fell silent in the middle of a stream")

    async def finish(self) -> None:
        """The end has been read but for HTTP's own: read that, so that the connection can be used again."""
        try:
            async with asyncio.timeout(1.0):
                while await self._connection.read():
                    pass
        except (TimeoutError, ReplicaFailure):
            # The answer is whole: a connection that cannot be used again is no harm.
            pass
        self.close()

    def close(self) -> None:
        """Let go: the connection is kept if all has arrived, else it is closed, which aborts the request."""
        self._watch.remove(self)
        done, self._done = self._done, None
        if done is not None:
            done(self._connection)


class Client:
    """Calls replicas. `close` at the end; `trim` now and then."""

    def __init__(
        self,
        watch: StallWatch,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        tls: ssl.SSLContext,
        clock: Callable[[], float],
        meaning: Meaning | None = None,
    ) -> None:
        """`meaning` gives the exception that `start` raises for an answer that is no success; None: as engines mean it."""
        self._watch = watch
        self._meaning = meaning or engines_meaning
        self._headers = dict(headers)
        self._connect_timeout = connect_timeout
        self._tls = tls
        self._clock = clock
        self._idle: dict[Address, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._closed = False
        self.connections_opened = 0

    def close(self) -> None:
        """Close all connections; streams that are still read break off."""
        self._closed = True
        for connection in tuple(self._open):
            connection.close()
        self._open.clear()
        self._idle.clear()

    def trim(self) -> None:
        """Close what has been idle for too long."""
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
    ) -> Reply:
        """POST `body`; returns once the answer has begun, if it is a success.

        Raises `InvalidRequest` for a refusal of the request, else `ReplicaFailure`.
        """
        address = address_of(where)
        message = self._message(address, "POST", path, body, headers)
        connection, status = await self._exchange(address, message)
        if status == 200:
            return Reply(connection, self._watch, self._keeper(address))
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
        """The JSON answer of a GET. Raises `ReplicaFailure` for anything but a success that can be read."""
        status, body = await self._call(where, "GET", path, b"", within)
        if status != 200:
            raise ReplicaFailure(f"{path} answers {status}")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.DecodeError as error:
            raise ReplicaFailure(f"what {path} answers cannot be read: {error}") from error

    async def answer(self, where: Endpoint, path: str, *, within: float) -> tuple[int, bytes]:
        """The status and the body of a GET. Raises `ReplicaFailure` where there are none."""
        return await self._call(where, "GET", path, b"", within)

    async def status(
        self, where: Endpoint, path: str, *, within: float, body: bytes | None = None
    ) -> int:
        """The status of a GET, or of a POST of `body`. Raises `ReplicaFailure` where there is none."""
        method = "GET" if body is None else "POST"
        return (await self._call(where, method, path, body or b"", within))[0]

    async def _call(
        self, where: Endpoint, method: str, path: str, body: bytes, within: float
    ) -> tuple[int, bytes]:
        address = address_of(where)
        connection: Connection | None = None
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
        # Trace headers come from clients: one with a line end would be two.
        lines += (
            f"{name}: {value}"
            for name, value in (self._headers | dict(headers)).items()
            if value.isprintable()
        )
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body

    async def _exchange(self, address: Address, message: bytes) -> tuple[Connection, int]:
        """Send a request; the connection it went through, and the answer's status."""
        while True:
            connection = self._take(address) or await self._connect(address)
            whole = False
            try:
                connection.send(message)
                status = await connection.head()
                whole = True
            except ReplicaFailure:
                # A server may close an idle connection at the moment in which it is used again: nobody's failure.
                if not connection.used:
                    raise
            finally:
                if not whole:
                    self._drop(connection)
            if whole:
                return connection, status

    def _take(self, address: Address) -> Connection | None:
        """The idle connection that was used last, if there is one."""
        idle = self._idle.get(address)
        oldest = self._clock() - _KEEP_ALIVE
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                connection.used = True
                return connection
            self._drop(connection)
        return None

    async def _connect(self, address: Address) -> Connection:
        if self._closed:
            raise ReplicaFailure("the gateway is shutting down")
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection,
                    address.host,
                    address.port,
                    ssl=self._tls if address.tls else None,
                    server_hostname=address.name if address.tls else None,
                )
        except TimeoutError as error:
            reason = f"no connection in {self._connect_timeout:g} seconds"
            raise UndeliveredError(reason) from error
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host name that cannot be one.
            raise UndeliveredError(
                f"no connection: {getattr(error, 'strerror', None) or error}"
            ) from error
        self.connections_opened += 1
        self._open.add(connection)
        return connection

    def _keeper(self, address: Address) -> Callable[[Connection], None]:
        return lambda connection: self._keep(address, connection)

    def _keep(self, address: Address, connection: Connection) -> None:
        """Keep the connection if another request may follow on it."""
        if connection.idle and not self._closed:
            connection.idle_since = self._clock()
            self._idle.setdefault(address, []).append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()


async def _read_up_to(connection: Connection, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < limit and (part := await connection.read()):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def engines_meaning(status: int, body: bytes, retry_after: str | None) -> Exception:
    """What a self-hosted engine means: whose fault it is, and whether another replica may do better."""
    error = read_error(body, status)
    if status in (400, 413, 422) or too_large(error):
        return refusal(error)
    if status == 404 and error.param == "model":
        # An adapter that cannot be loaded, or was taken away: others would say the same.
        return InvalidRequest(error.message, param="model", code="model_not_found")
    said = f"HTTP {status}: {error.message[:300]}"
    if status == 429:
        return ReplicaBusy(said, seconds_of(retry_after))
    return ReplicaFailure(said)


def seconds_of(value: str | None) -> float:
    """Of a Retry-After; servers may also write a date, for which one second will do."""
    try:
        return min(60.0, max(0.1, float(value or 1)))
    except ValueError:
        return 1.0


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext:
    """How TLS is spoken. Raises OSError for a CA file that cannot be read."""
    context = ssl.create_default_context(cafile=ca_file)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def headers_of(fixed: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """The headers of every request."""
    return {**fixed, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
