"""Generates load: many concurrent streams, read with minimal work."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import msgspec
import uvloop

DONE = b"data: [DONE]"


class Result(msgspec.Struct, kw_only=True):
    """Results of one load. Times are in seconds."""

    requests: int
    tokens: int
    seconds: float
    first_p50: float
    first_p99: float


class Client(asyncio.Protocol):
    """Sends requests on one connection, one after the other. Records only when the first response began."""

    def __init__(self, request: bytes, *, stream: bool, requests: int = 1) -> None:
        self._request = request
        self._left = requests
        self._tail = b""
        self._stream = stream
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first = 0.0
        self._delta_seen = False
        self._sent = 0.0
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._sent = time.perf_counter()
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._delta_seen and (b".delta" in data or b'"delta":' in data or not self._stream):
            self._delta_seen = True
            self.first = time.perf_counter() - self._sent
        tail = self._tail + data[-64:]
        if DONE in tail or (not self._stream and tail.rstrip().endswith(b"}")):
            self._left -= 1
            self._tail = b""
            if self._left > 0:
                self._transport.write(self._request)
            elif not self.done.done():
                self.done.set_result(None)
            return
        self._tail = tail[-64:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))


def http_request(port: int, path: str, body: dict[str, Any]) -> bytes:
    """The bytes of a POST of `body` to `path`."""
    encoded = msgspec.json.encode(body)
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(encoded)}\r\n\r\n"
    ).encode() + encoded


def request_of(api: str, port: int, model: str, tokens: int, stream: bool) -> bytes:
    """A request for `tokens` tokens to `api`: `responses` or `chat`."""
    said = "Hello there, how are you today?"
    body: dict[str, Any] = {"model": model, "stream": stream}
    if api == "chat":
        body |= {"messages": [{"role": "user", "content": said}], "max_tokens": tokens}
        return http_request(port, "/v1/chat/completions", body)
    body |= {"input": said, "max_output_tokens": tokens, "store": False}
    return http_request(port, "/v1/responses", body)


async def load(
    api: str, port: int, model: str, streams: int, tokens: int, stream: bool, requests: int
) -> Result:
    """Open `streams` connections, send `requests` requests of `tokens` tokens on each, and read all responses."""
    loop = asyncio.get_running_loop()
    request = request_of(api, port, model, tokens, stream)
    begin = time.perf_counter()
    made = await asyncio.gather(
        *(
            loop.create_connection(
                lambda: Client(request, stream=stream, requests=requests), "127.0.0.1", port
            )
            for _ in range(streams)
        )
    )
    clients = [client for _, client in made]
    await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - begin
    for transport, _ in made:
        transport.close()
    first = sorted(client.first for client in clients)
    return Result(
        requests=streams * requests,
        tokens=streams * requests * tokens,
        seconds=seconds,
        first_p50=first[len(first) // 2],
        first_p99=first[min(len(first) - 1, len(first) * 99 // 100)],
    )


if __name__ == "__main__":
    which, at, name, count, size, streamed, each = sys.argv[1:8]
    result = uvloop.run(
        load(which, int(at), name, int(count), int(size), streamed == "stream", int(each))
    )
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
