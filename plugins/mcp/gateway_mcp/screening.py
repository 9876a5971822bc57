"""Screens what a server sends over HTTP before the SDK parses it.

The SDK parses and validates messages on the event loop. The time that this takes depends on the number of JSON
values, not on the number of bytes: four megabytes of text are parsed in milliseconds, four megabytes of `{}` in
half a minute. So the values are counted first, by searching for separators outside of strings, which takes
milliseconds for any message.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from gateway.sdk.http import TooLarge
from gateway_mcp.pacing import TokenBucket

MAX_VALUES: Final = 50_000
"""Maximum number of JSON values per message."""
_BYTES_A_SECOND: Final = 33_554_432
_REQUESTS_A_SECOND: Final = 10.0
_REQUEST_BURST: Final = 200.0
_LINE: Final = 512
"""Minimum number of bytes that a line of an event stream counts as: even empty lines take time."""
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r)")
_DATA = re.compile(rb"(?:^|[\r\n])data(?::([^\r\n]*)|(?=[\r\n]))")
_EVENT_STREAM: Final = "text/event-stream"


class TooComplex(TooLarge):
    """A message with too many JSON values."""


def count_values(json: bytes) -> int:
    """An upper bound on the number of values of a JSON text. Results above `MAX_VALUES` are not exact.

    For invalid JSON, this holds for the part before the first error, which is all that a parser reads.
    """
    if json.count(b",") + json.count(b"[") + json.count(b"{") <= MAX_VALUES:
        return MAX_VALUES  # few enough, wherever the separators are
    plain = json.replace(b"\\\\", b"").replace(b'\\"', b"")
    if (
        plain.count(b'"') > 4 * MAX_VALUES
    ):  # a string has two quotes, and an object's member has two strings
        return MAX_VALUES + 1
    outside = b"".join(plain.split(b'"')[::2])
    return 1 + outside.count(b",") + outside.count(b"[") + outside.count(b"{")


class ScreenedTransport(httpx2.AsyncBaseTransport):
    """Refuses messages with too many JSON values, and limits the rate at which a server's data is read.

    Event streams are decoded as UTF-8, as their specification requires, whatever character set the server
    declares.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_bytes: int) -> None:
        """`max_bytes` is the maximum size of an event; other bodies are limited elsewhere."""
        self._inner = inner
        self._max_bytes = max_bytes
        self._requests = TokenBucket(_REQUESTS_A_SECOND, _REQUEST_BURST)
        self._bytes = TokenBucket(_BYTES_A_SECOND, _BYTES_A_SECOND)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            # If a server ends its stream, the SDK requests it again, immediately if the server says so.
            await self._requests.wait()
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == _EVENT_STREAM:
            response.headers["content-type"] = _EVENT_STREAM
            response.stream = _Events(response.stream, self._max_bytes, self._bytes)
        else:
            response.stream = _Body(response.stream, self._bytes)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Body(httpx2.AsyncByteStream):
    """A body that is a single JSON message."""

    def __init__(self, inner: httpx2.AsyncByteStream, bucket: TokenBucket) -> None:
        self._inner = inner
        self._bucket = bucket

    async def __aiter__(self) -> AsyncIterator[bytes]:
        whole = bytearray()
        async for chunk in self._inner:
            await self._bucket.wait(len(chunk))
            whole += chunk
        _check(bytes(whole))
        yield bytes(whole)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Events(httpx2.AsyncByteStream):
    """A stream of events with one JSON message each. Passes on whole events."""

    def __init__(self, inner: httpx2.AsyncByteStream, max_bytes: int, bucket: TokenBucket) -> None:
        self._inner = inner
        self._max_bytes = max_bytes
        self._bucket = bucket

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for chunk in self._inner:
            lines = chunk.count(b"\n") + chunk.count(b"\r")
            await self._bucket.wait(len(chunk) + _LINE * lines)
            begin = max(len(held) - 3, 0)
            held += chunk
            end = 0
            for found in _EVENT_END.finditer(held, begin):
                _check_event(bytes(held[end : found.end()]))
                end = found.end()
            if end:
                yield bytes(held[:end])
                del held[:end]
            if len(held) > self._max_bytes + 65_536:
                raise TooLarge("The server's event is larger than this gateway takes.")
        _check_event(bytes(held))
        yield bytes(held)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _check_event(event: bytes) -> None:
    if event.count(b",") + event.count(b"[") + event.count(b"{") > MAX_VALUES:
        _check(b"\n".join(_DATA.findall(event)))


def _check(message: bytes) -> None:
    if count_values(message) > MAX_VALUES:
        raise TooComplex(f"The server's message has more than {MAX_VALUES} JSON values.")
