"""HTTP statuses of a server's errors, which the SDK does not report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any, Final

import httpx2
import msgspec
from mcp import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_REQUEST

_STATUS: Final = "litegate/httpStatus"
"""The key of an error's `data` under which its HTTP status is kept."""
_LARGEST_ERROR: Final = 65_536
"""Maximum size of an error's body in bytes. The JSON-RPC error of a larger one is not read."""
_SECONDS: Final = 5.0
"""Seconds for an error's body."""


class StatusTransport(httpx2.AsyncBaseTransport):
    """Adds the HTTP status to the JSON-RPC errors with which a server refuses messages.

    Whatever the body of a refusal is, the SDK gets a JSON-RPC error: that of the body if there is one, which it passes on
    to the caller without the status, or one that has nothing but the status.
    """

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, refused: Callable[[int], None] | None = None
    ) -> None:
        """`refused` is called with the status of each refused message."""
        self._inner = inner
        self._refused = refused

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if request.method != "POST":
            return response
        if response.status_code < 400:
            if _is_json(response):
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                response.stream = _Addressed(response.stream, request.content)
            return response
        code, message, data = await _error_in(response)
        status = response.status_code
        if self._refused is not None:
            self._refused(status)
        error = {"code": code, "message": message, "data": {**data, _STATUS: status}}
        return httpx2.Response(
            status,
            headers={"content-type": "application/json"},
            content=msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error}),
            request=request,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_json(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "")
    return isinstance(kind, str) and kind.lower().startswith("application/json")


class _Addressed(httpx2.AsyncByteStream):
    """The answer to a message. An error without an id, which says that the message was not looked at, gets the message's id:
    the SDK would wait on."""

    def __init__(self, inner: httpx2.AsyncByteStream, message: bytes) -> None:
        self._inner = inner
        self._message = message

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = b"".join([chunk async for chunk in self._inner])
        if b'"error"' in whole and len(whole) <= _LARGEST_ERROR:
            try:
                error = msgspec.json.decode(whole, type=_Refusal)
                asked = msgspec.json.decode(self._message, type=_Message)
            except msgspec.DecodeError:
                pass
            else:
                if error.id is None:
                    answer = {"jsonrpc": "2.0", "id": asked.id, "error": error.error}
                    whole = msgspec.json.encode(answer)
        yield whole

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Message(msgspec.Struct):
    id: int | str


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class _Refusal(msgspec.Struct):
    error: _Error
    id: int | str | None = None


async def _error_in(response: httpx2.Response) -> tuple[int, str, dict[str, Any]]:
    """Code, message and data of the JSON-RPC error in a refusal's body. The message is empty if there is none."""
    none: tuple[int, str, dict[str, Any]]
    none = INVALID_REQUEST if response.status_code < 500 else INTERNAL_ERROR, "", {}
    try:
        async with asyncio.timeout(_SECONDS):
            if not _is_json(response):
                return none
            body = await response.aread()
        if len(body) > _LARGEST_ERROR:
            return none
        error = msgspec.json.decode(body, type=_Refusal).error
    except (httpx2.StreamError, httpx2.TransportError, TimeoutError, msgspec.DecodeError):
        return none
    finally:
        await response.aclose()
    return error.code, error.message, error.data if isinstance(error.data, dict) else {}


def status_of(error: MCPError) -> int | None:
    """The HTTP status of a server's error; None if it came in an answer with a status of success, or not by HTTP."""
    data = error.error.data
    status = data.get(_STATUS) if isinstance(data, dict) else None
    return status if isinstance(status, int) else None


def described(status: int) -> str:
    """A status for users: `HTTP status 404 (Not Found)`."""
    try:
        return f"HTTP status {status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return f"HTTP status {status}"
