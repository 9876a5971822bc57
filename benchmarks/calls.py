"""Counts the Python calls of one request: `python -m benchmarks.calls [--only NAME] [--functions]`.

The counts do not depend on the machine or on other work on it. A gateway on the null engine serves a request of each case
until everything is warm, then once more with a profile function that notes each entry of a Python frame: a call, or the
resumption of a coroutine or generator. Consecutive entries in the same file are one stay; a stay in a file that was left
before is a re-entry. Frames outside the project (uvicorn, Litestar, Jinja, the standard library) count as calls, but are no stays.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import msgspec
import uvloop

from benchmarks import null_engine
from benchmarks.load import DONE, http_request
from benchmarks.run import ROOT
from gateway_testing.server import RunningGateway, run_gateway

Entry: TypeAlias = tuple[str, str]
"""File and function of a frame."""

WARM = 20
"""Requests before those that are counted."""
COUNTED = 5
"""Requests that are counted. The smallest count is shown, because now and then the server's own timer runs between."""
QUESTION = "Hello there, how are you today?"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request."""

    name: str
    path: str
    body: dict[str, Any]
    model: str = "plain"
    """`plain`, or `qwen` whose template takes tools."""


def responses(name: str, tokens: int, said: Any = QUESTION, *, stream: bool = False) -> Case:
    body = {"input": said, "max_output_tokens": tokens, "store": False, "stream": stream}
    return Case(name=name, path="/v1/responses", body=body)


def chat(name: str, tokens: int, messages: list[Any], *, stream: bool = False) -> Case:
    body = {"messages": messages, "max_tokens": tokens, "stream": stream}
    return Case(name=f"chat, {name}", path="/v1/chat/completions", body=body)


def conversation(items: int) -> list[dict[str, str]]:
    """Messages of the user and the assistant in turn."""
    return [
        {"role": "assistant" if index % 2 else "user", "content": f"{QUESTION} {index}"}
        for index in range(items)
    ]


def agent(items: int) -> Case:
    """What an agent sends: instructions, ten tools, and a conversation of calls and their results."""
    tools = [
        {
            "type": "function",
            "name": f"tool_{index}",
            "description": "Reads a file and returns its lines, from a start to an end. " * 3,
            "parameters": {
                "type": "object",
                "properties": {
                    f"argument_{number}": {
                        "type": "string",
                        "description": "The path of the file, relative to the root of the repository.",
                    }
                    for number in range(4)
                },
                "required": ["argument_0"],
            },
        }
        for index in range(10)
    ]
    steps = [
        step
        for index in range((items - 1) // 2)
        for step in (
            {
                "type": "function_call",
                "call_id": f"call_{index}",
                "name": f"tool_{index % 10}",
                "arguments": f'{{"argument_0": "folder/file_{index}.py", "argument_1": "1"}}',
            },
            {
                "type": "function_call_output",
                "call_id": f"call_{index}",
                "output": f"{index}: def function(argument): return argument\n" * 5,
            },
        )
    ]
    body = {
        "instructions": "You are a careful engineer. " * 40,
        "tools": tools,
        "input": [{"role": "user", "content": QUESTION}, *steps],
        "max_output_tokens": 64,
        "store": False,
        "stream": False,
    }
    return Case(
        name=f"JSON, 64 tokens, 10 tools, {items} items of input",
        path="/v1/responses",
        body=body,
        model="qwen",
    )


CASES = (
    responses("JSON, 64 tokens", 64),
    responses("JSON, 1 token", 1),
    responses("JSON, 64 tokens, 50 items of input", 64, conversation(49)),
    agent(1),
    agent(51),
    responses("stream of two tokens", 2, stream=True),
    chat("JSON, 64 tokens", 64, conversation(1)),
    chat("JSON, 1 token", 1, conversation(1)),
    chat("JSON, 64 tokens, 49 messages", 64, conversation(49)),
    chat("stream of two tokens", 2, conversation(1), stream=True),
)


class Recorder:
    """Notes the frames that a thread enters while it is on."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            code = frame.f_code
            self.entries.append((code.co_filename, code.co_qualname))


class Counts(msgspec.Struct, kw_only=True):
    """What one request entered."""

    calls: int
    files: int
    stays: int
    again: Counter[str]
    """How often each file was entered again."""
    functions: Counter[str]


def counts_of(entries: Sequence[Entry]) -> Counts:
    own = [(_own(file), function) for file, function in entries]
    stays = [file for file, _ in groupby(file for file, _ in own if file) if file]
    visits = Counter(stays)
    return Counts(
        calls=len(entries),
        files=len(visits),
        stays=len(stays),
        again=Counter({file: number - 1 for file, number in visits.items() if number > 1}),
        functions=Counter(
            f"{own or Path(file).name}:{function}"
            for (file, function), (own, _) in zip(entries, own, strict=True)
        ),
    )


def _own(file: str) -> str | None:
    """The path of a file of the project, relative to its root; None for others, and for the null engine."""
    path = Path(file)
    if not path.is_relative_to(ROOT) or path.is_relative_to(ROOT / "benchmarks"):
        return None
    return str(path.relative_to(ROOT))


def request(connection: socket.socket, sent: bytes, *, stream: bool) -> bytes:
    """Send a request and read its whole answer."""
    connection.sendall(sent)
    answer = b""
    while not (DONE in answer if stream else answer.rstrip().endswith(b"}")):
        read = connection.recv(1 << 16)
        if not read:
            raise RuntimeError("the server hung up")
        answer += read
    if not answer.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(answer.decode())
    return answer


def count(gateway: RunningGateway, port: int, case: Case) -> Counts:
    """Count the calls of one warm request."""
    sent = http_request(port, case.path, {"model": case.model, **case.body})
    stream = case.body["stream"]
    seen = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(WARM):
            request(connection, sent, stream=stream)
        for _ in range(COUNTED):
            recorder = Recorder()
            gateway.run(_profile(recorder))
            request(connection, sent, stream=stream)
            gateway.run(_profile(None))
            seen.append(counts_of(_of_request(recorder.entries)))
    return min(seen, key=lambda each: each.calls)


async def _profile(function: Recorder | None) -> None:
    """Use `function` for the thread of the event loop."""
    sys.setprofile(function)


def _of_request(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Without what asyncio does to begin and end the profile."""
    numbers = [number for number, (file, _) in enumerate(entries) if _own(file)]
    return entries[numbers[0] : numbers[-1] + 1]


def main() -> None:
    """Count the calls of all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument(
        "--functions", action="store_true", help="also the functions, and the files entered again"
    )
    arguments = parser.parse_args()
    print("| case | calls | files | stays | re-entries |\n|---|---|---|---|---|")
    model = {"engine": "null", "renderer": "chat_template"}
    models = {
        "plain": {**model, "parser": "plain"},
        "qwen": {**model, "parser": "qwen3", "null": {"tools": True}},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        run_gateway(
            {"models": models},
            Path(folder),
            plugins=[null_engine],
            loop_factory=uvloop.new_event_loop,
        ) as gateway,
    ):
        port = int(gateway.base_url.rpartition(":")[2].removesuffix("/v1"))
        for case in CASES:
            if arguments.only not in case.name:
                continue
            found = count(gateway, port, case)
            print(
                f"| {case.name} | {found.calls} | {found.files} | {found.stays} | {found.again.total()} |"
            )
            if arguments.functions:
                print(
                    *(f"{number:5} {name}" for name, number in found.again.most_common()), sep="\n"
                )
                print("functions")
                print(
                    *(f"{number:5} {name}" for name, number in found.functions.most_common()),
                    sep="\n",
                )


if __name__ == "__main__":
    main()
