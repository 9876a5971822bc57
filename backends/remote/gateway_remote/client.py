"""HTTP to replicas: one session, its pool of connections, and what answers mean."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import aiohttp
import msgspec
from yarl import URL

from gateway_remote.failures import ErrorBody, ReplicaBusy, ReplicaFailure, read_error, refusal
from gateway_remote.replica import Endpoint
from gateway_remote.stalls import StallWatch

_ERROR_BYTES = 64 * 1024
_READ_BUFFER = 64 * 1024
"""Bytes of a stream that wait here; at twice as many the connection is not read until the client has caught up."""
_KEEP_ALIVE = 4.0
"""Seconds: uvicorn, on which vLLM and SGLang run, closes idle connections after five."""

T = TypeVar("T")


class UndeliveredError(ReplicaFailure):
    """No connection: the replica has not seen the request."""


class Reply:
    """A stream that a replica answers with. `close` unless it was read to its end."""

    __slots__ = ("_content", "_response", "_watch", "stalled", "waiting_since")

    def __init__(self, response: aiohttp.ClientResponse, watch: StallWatch) -> None:
        self._response = response
        self._content = response.content
        self._watch = watch
        self.waiting_since: float | None = None
        """When the wait for data began, if anybody waits."""
        self.stalled = False

    def watch(self) -> None:
        """From now on silence is a failure. Before the first token it may just be a queue."""
        self._watch.add(self)

    async def read(self) -> bytes:
        """What has arrived since the last call, all of it; waits if that is nothing; empty at the end."""
        self.waiting_since = self._watch.now
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            # aiohttp raises RuntimeError for a read on a connection that is closed already.
            if self.stalled:
                raise ReplicaFailure("it fell silent in the middle of a stream") from error
            raise ReplicaFailure(f"its stream broke off: {_reason(error)}") from error
        finally:
            self.waiting_since = None

    def stall(self) -> None:
        """Nothing has come for too long: end it; a waiting `read` raises."""
        self.stalled = True
        self._response.close()

    async def finish(self) -> None:
        """The end has been read but for HTTP's own: read that, so that the connection can be used again."""
        try:
            async with asyncio.timeout(1.0):
                while not self._content.at_eof():
                    await self._content.readany()
        except (TimeoutError, aiohttp.ClientError, OSError, RuntimeError):
            # The answer is whole: a connection that cannot be used again is no harm.
            pass
        self.close()

    def close(self) -> None:
        """Let go: the connection goes back to the pool if all was read, else it is closed, which aborts the request."""
        self._watch.remove(self)
        if self._content.at_eof():
            self._response.release()
        else:
            self._response.close()


class Client:
    """Calls replicas. `close` at the end."""

    def __init__(
        self,
        watch: StallWatch,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        tls: ssl.SSLContext | bool,
    ) -> None:
        self._watch = watch
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=_KEEP_ALIVE),
            headers={"Accept-Encoding": "identity", **headers},
            # Silence is watched for by `StallWatch`: aiohttp would set a timer for each piece of data.
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=connect_timeout, connect=None, sock_read=None
            ),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER,
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=False,
        )

    async def close(self) -> None:
        await self._session.close()

    async def start(
        self, where: Endpoint, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Reply:
        """POST `body`; returns once the answer has begun, if it is a success.

        Raises `InvalidRequest` for a refusal of the request, else `ReplicaFailure`.
        """
        response = await self._post(where, path, body, headers)
        if response.status == 200:
            return Reply(response, self._watch)
        try:
            error = await self._error(response)
        finally:
            response.close()
        raise _meaning(response, error)

    async def get(self, where: Endpoint, path: str, kind: type[T], *, within: float) -> T:
        """The JSON answer of a GET. Raises `ReplicaFailure` for anything but a success that can be read."""
        try:
            async with asyncio.timeout(within):
                async with self._session.get(
                    _url(where.url, path), headers=_host(where), server_hostname=_name(where)
                ) as response:
                    if response.status != 200:
                        raise ReplicaFailure(f"{path} answers {response.status}")
                    return msgspec.json.decode(await response.read(), type=kind)
        except TimeoutError as error:
            raise ReplicaFailure(f"no answer on {path} in {within:g} seconds") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ReplicaFailure(_reason(error)) from error
        except msgspec.DecodeError as error:
            raise ReplicaFailure(f"what {path} answers cannot be read: {error}") from error

    async def status(
        self, where: Endpoint, path: str, *, within: float, body: bytes | None = None
    ) -> int:
        """The status of a GET, or of a POST of `body`. Raises `ReplicaFailure` where there is none."""
        try:
            async with asyncio.timeout(within):
                async with self._session.request(
                    "GET" if body is None else "POST",
                    _url(where.url, path),
                    data=body,
                    headers={"Content-Type": "application/json", **_host(where)},
                    server_hostname=_name(where),
                ) as response:
                    return response.status
        except TimeoutError as error:
            raise ReplicaFailure(f"no answer on {path} in {within:g} seconds") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ReplicaFailure(_reason(error)) from error

    async def _post(
        self, where: Endpoint, path: str, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        for last_try in (False, True):
            try:
                return await self._session.post(
                    _url(where.url, path),
                    data=body,
                    headers={"Content-Type": "application/json", **_host(where), **headers},
                    server_hostname=_name(where),
                    allow_redirects=False,
                )
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
                raise UndeliveredError(_reason(error)) from error
            except (aiohttp.ClientError, OSError) as error:
                # A server may close an idle connection at the moment in which it is used again: nobody's failure.
                if last_try:
                    raise ReplicaFailure(f"it hung up: {_reason(error)}") from error
        raise AssertionError("the second try returns or raises")

    async def _error(self, response: aiohttp.ClientResponse) -> ErrorBody:
        try:
            async with asyncio.timeout(5.0):
                body = await response.content.read(_ERROR_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError):
            body = b""
        return read_error(body, response.status)


def _meaning(response: aiohttp.ClientResponse, error: ErrorBody) -> Exception:
    status = response.status
    if status in (400, 413, 422):
        return refusal(error)
    said = f"HTTP {status}: {error.message[:300]}"
    if status == 429:
        return ReplicaBusy(said, _retry_after(response.headers.get("retry-after")))
    return ReplicaFailure(said)


def _retry_after(value: str | None) -> float:
    """Seconds; servers may also write a date, for which one second will do."""
    try:
        return min(60.0, max(0.1, float(value or 1)))
    except ValueError:
        return 1.0


@lru_cache(maxsize=4096)
def _url(base: str, path: str) -> URL:
    return URL(base + path, encoded=True)


def _host(where: Endpoint) -> dict[str, str]:
    return {} if where.host is None else {"Host": where.host}


def _name(where: Endpoint) -> str | None:
    return None if where.host is None else URL(f"//{where.host}").host


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def tls_context(ca_file: str | None, *, verify: bool) -> ssl.SSLContext | bool:
    """What aiohttp's `ssl` takes. Raises OSError for a CA file that cannot be read."""
    if not verify:
        return False
    return True if ca_file is None else ssl.create_default_context(cafile=ca_file)


def headers_of(fixed: Mapping[str, str], api_key: str | None) -> dict[str, Any]:
    """The headers of every request."""
    return {**fixed, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
