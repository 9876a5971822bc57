"""The load: many streams at once, read with as little work as can be."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import msgspec
import uvloop

DONE = b"data: [DONE]"


class Result(msgspec.Struct, kw_only=True):
    """What one load saw. Times in seconds."""

    streams: int
    tokens: int
    seconds: float
    first_p50: float
    first_p99: float


class Client(asyncio.Protocol):
    """One request on one connection; reads to the end and counts nothing but bytes and the first one's time."""

    def __init__(self, request: bytes, started: asyncio.Future[None] | None) -> None:
        self._request = request
        self._tail = b""
        self._stream = started is not None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first = 0.0
        self._delta_seen = False
        self._sent = 0.0

    def connection_made(self, transport: Any) -> None:
        self._sent = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._delta_seen and (b".delta" in data or not self._stream):
            self._delta_seen = True
            self.first = time.perf_counter() - self._sent
        tail = self._tail + data[-64:]
        if DONE in tail or (not self._stream and tail.rstrip().endswith(b"}")):
            if not self.done.done():
                self.done.set_result(None)
            return
        self._tail = tail[-64:]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))


def http_request(port: int, body: dict[str, Any]) -> bytes:
    """The bytes of a POST of `body`."""
    encoded = msgspec.json.encode(body)
    return (
        f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(encoded)}\r\n\r\n"
    ).encode() + encoded


async def load(port: int, model: str, streams: int, tokens: int, stream: bool) -> Result:
    """Open `streams` requests at once, each of `tokens` tokens, and read them all."""
    loop = asyncio.get_running_loop()
    body = {
        "model": model,
        "input": "Hello there, how are you today?",
        "max_output_tokens": tokens,
        "stream": stream,
        "store": False,
    }
    request = http_request(port, body)
    marker = loop.create_future() if stream else None
    begin = time.perf_counter()
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: Client(request, marker), "127.0.0.1", port)
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
        streams=streams,
        tokens=streams * tokens,
        seconds=seconds,
        first_p50=first[len(first) // 2],
        first_p99=first[min(len(first) - 1, len(first) * 99 // 100)],
    )


if __name__ == "__main__":
    at, name, count, size, streamed = sys.argv[1:6]
    result = uvloop.run(load(int(at), name, int(count), int(size), streamed == "stream"))
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
