"""Measures how long other clients wait while the gateway serves large bodies: `python -m benchmarks.large_prompts [--only NAME]`.

One client sends small requests one after the other; another sends the large ones. The slowest of the small requests shows how
long the event loop stood still. All figures are of one run, and only the gateway's own work is measured: the null engine reads no prompt, but
the model `harmony-flat` has a real vocabulary.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any

import msgspec
from websockets.sync.client import connect

from benchmarks.run import serving

WORDS = "Some words of a prompt that is long. "
SMALL = 200
"""Small requests without a large one beside them."""
LARGE = 6
"""Large requests of each case."""
ENDS = (b"response.completed", b"response.incomplete", b'"type":"error"')
"""What is in the last message of an answer over a WebSocket."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of large request."""

    name: str
    path: str
    body: dict[str, Any]
    socket: bool = False


def text(size: int) -> str:
    """A text of about `size` characters."""
    return WORDS * (size // len(WORDS))


def messages(number: int, size: int) -> list[dict[str, str]]:
    """Messages of the user and the assistant in turn, of about `size` characters together."""
    said = text(size // number) or "a"
    return [
        {"role": "assistant" if index % 2 else "user", "content": f"{said}{index}"}
        for index in range(number)
    ]


def schema(properties: int) -> dict[str, Any]:
    """A JSON schema of so many properties."""
    return {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(properties)},
    }


def cases() -> list[Case]:
    """All cases. Some are refused for what the null engine or the limits do not allow; reading them is what is measured."""
    responses = {"model": "plain-flat", "max_output_tokens": 1, "store": False}
    chat = {"model": "plain-flat", "max_tokens": 1}
    kept = {"model": "plain-flat", "max_output_tokens": 1}
    harmony = {**responses, "model": "harmony-flat"}
    tool = {"type": "function", "name": "f", "parameters": schema(100_000)}
    made = []
    for label, size in (("1 MB", 1_000_000), ("10 MB", 10_000_000)):
        many = messages(16_000, size)
        made += [
            Case(name=f"{label}, one text", path="/v1/responses", body={**responses, "input": text(size)}),
            Case(name=f"{label}, 16,000 messages", path="/v1/responses", body={**responses, "input": many}),
            Case(name=f"{label}, 16,000 messages, stored", path="/v1/responses", body={**kept, "input": many}),
            Case(name=f"{label}, 16,000 messages, WebSocket", path="/v1/responses", body={**responses, "input": many}, socket=True),
            Case(name=f"{label}, 16,000 messages, chat", path="/v1/chat/completions", body={**chat, "messages": many}),
            Case(name=f"{label}, one text, Harmony", path="/v1/responses", body={**harmony, "input": text(size)}),
            Case(name=f"{label}, 2,000 texts to embed", path="/v1/embeddings", body={"model": "plain-flat", "input": [each["content"] for each in messages(2000, size)]}),
            Case(name=f"{label}, 16,000 documents to rank", path="/v1/rerank", body={"model": "plain-flat", "query": "a", "documents": [each["content"] for each in many]}),
            Case(name=f"{label}, 20 items of a conversation", path="/v1/conversations", body={"items": messages(20, size)}),
        ]  # fmt: skip
    made.append(Case(name="100,000 properties of a tool", path="/v1/responses", body={**responses, "input": "a", "tools": [tool]}))  # fmt: skip
    return made


def small_requests(port: int, go_on: Callable[[], bool]) -> list[float]:
    """Send small requests until `go_on()` is false. Returns their times in ms."""
    body = {"model": "plain-flat", "input": "Hello", "max_output_tokens": 1, "store": False}
    encoded = msgspec.json.encode(body)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    times = []
    while go_on():
        began = time.perf_counter()
        connection.request("POST", "/v1/responses", encoded, {"content-type": "application/json"})
        connection.getresponse().read()
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.001)
    connection.close()
    return times


def send_large(port: int, case: Case, began: Event) -> None:
    """Send the large request of `case` `LARGE` times; any answer will do. Runs in a process of its own."""
    message = msgspec.json.encode({"type": "response.create", **case.body})
    body = msgspec.json.encode(case.body)
    began.set()
    if case.socket:
        with connect(f"ws://127.0.0.1:{port}{case.path}", max_size=None) as socket:
            for _ in range(LARGE):
                socket.send(message, text=True)
                while not _is_last(socket.recv(decode=False)):
                    pass
        return
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for _ in range(LARGE):
        connection.request("POST", case.path, body, {"content-type": "application/json"})
        connection.getresponse().read()
    connection.close()


def _is_last(frame: bytes) -> bool:
    return any(end in frame for end in ENDS)


def measure(port: int, case: Case) -> tuple[list[float], float]:
    """Times of small requests beside the large ones, and the time of a large one, in ms."""
    spawned = multiprocessing.get_context("spawn")
    began = spawned.Event()
    process = spawned.Process(target=send_large, args=(port, case, began))
    process.start()
    began.wait()
    at = time.perf_counter()
    times = small_requests(port, process.is_alive)
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{case.name} could not be sent")
    return times, (time.perf_counter() - at) * 1000 / LARGE


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    with serving("gateway") as server:
        small_requests(server.port, iter([True] * SMALL + [False]).__next__)
        alone = small_requests(server.port, iter([True] * SMALL + [False]).__next__)
        sys.stdout.write(
            "| beside | p50 | p99 | longest, ms | large request, ms |\n|---|---|---|---|---|\n"
        )
        sys.stdout.write(_row("nothing", alone, None))
        for case in cases():
            if arguments.only in case.name:
                sys.stdout.write(_row(case.name, *measure(server.port, case)))
                sys.stdout.flush()


def _row(name: str, times: list[float], large: float | None) -> str:
    p99 = sorted(times)[min(len(times) - 1, len(times) * 99 // 100)]
    shown = "" if large is None else f"{large:.0f}"
    return f"| {name} | {statistics.median(times):.1f} | {p99:.1f} | {max(times):.1f} | {shown} |\n"


if __name__ == "__main__":
    main()
