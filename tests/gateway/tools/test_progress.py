"""Calls that report progress: the event of their state is repeated, not too often, and never after their end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import hookimpl
from gateway.observe.metrics import Metrics
from gateway.plugins.protocols import (
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
    Turn,
)
from gateway.tools.available import BoundTool
from gateway.tools.calls import ToolCalls
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

KINDS: Any = {
    "mcp": (None, "mcp_call"),
    "web": ("web_search", "web_search_call"),
    "files": ("file_search", "file_search_call"),
    "code": ("code_interpreter", "code_interpreter_call"),
    "sh": ("shell", "shell_call"),
}
EVENTS = {
    "mcp": "response.mcp_call.in_progress",
    "web": "response.web_search_call.searching",
    "files": "response.file_search_call.searching",
    "code": "response.code_interpreter_call.interpreting",
}
TOOLS: Any = [
    {"type": "web_search"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "shell", "environment": {"type": "container_auto"}},
]


class Reporting(ToolServer):
    """Tools that report progress a thousand times at once."""

    label = "reporting"

    async def tools(self) -> Sequence[ServerTool]:
        return [
            ServerTool(
                definition=ToolDefinition(name=name), request_type=request, item_type=item_type
            )
            for name, (request, item_type) in KINDS.items()
        ]

    async def call(self, call: ToolCall) -> ToolResult:
        for _ in range(1000):
            call.report_progress()
        await asyncio.sleep(0)
        return ToolResult(text=f"{call.name} ran")


class Plugin:
    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Reporting]:
        yield Reporting()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("reporting", self.open)


RULES = [
    *(
        {
            "when": f"use {name}",
            "pieces": [{"call": {"name": name, "arguments": {"commands": ["x"]}}}],
        }
        for name in KINDS
    ),
    {"when": "ran", "pieces": [{"text": "Done."}]},
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"chat_tools": ["reporting"]},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        "tools": {"reporting": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("progress"), plugins=[Plugin()]) as running:
        yield running


@pytest.mark.parametrize("name", KINDS)
def test_a_stream_repeats_the_event_of_the_calls_state(gateway: RunningGateway, name: str) -> None:
    body = {"model": "m", "input": f"use {name}", "tools": TOOLS, "stream": True}
    answer = httpx.post(f"{gateway.base_url}/responses", json=body)
    events = parse_sse(answer.content)
    assert fold(events)["status"] == "completed"
    counts = Counter(event["type"] for event in events)
    if name in EVENTS:
        assert counts[EVENTS[name]] == 2, "at the start, and for the first report"


def test_other_answers_are_the_same(gateway: RunningGateway) -> None:
    messages = [{"role": "user", "content": "use mcp"}]
    body = {"model": "m", "messages": messages}
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "Done."
    stored = httpx.post(f"{gateway.base_url}/responses", json={"model": "m", "input": "use mcp"})
    assert [item["type"] for item in stored.json()["output"]] == ["mcp_call", "message"]


class Scripted(ToolServer):
    """Each call reports progress and pauses as its arguments say."""

    label = "scripted"

    async def call(self, call: ToolCall) -> ToolResult:
        for reports in call.arguments["steps"]:
            for _ in range(reports):
                call.report_progress()
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(call.report_progress)  # too late
        return ToolResult(text="done")


async def told(steps: list[list[int]]) -> list[tuple[int, bool]]:
    """What is yielded for calls with these steps: the number of the call, and whether it has its result."""
    tool = BoundTool(Scripted(), ServerTool(definition=ToolDefinition(name="x")))
    calls = ToolCalls(
        "r", {"x": tool}, turn=Turn(items=[]), max_calls=None, max_parallel=3, metrics=Metrics()
    )
    pending = [
        SimpleNamespace(
            id=str(number),
            name="x",
            arguments=msgspec.json.encode({"steps": each}).decode(),
            approval_request_id=None,
        )
        for number, each in enumerate(steps)
    ]
    async with AsyncExitStack() as sessions:
        return [
            (int(call.id), result is not None)
            async for call, result in calls.run(pending, sessions)
        ]


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=5))
def test_results_are_in_order_and_no_progress_follows_them(steps: list[list[int]]) -> None:
    out = asyncio.run(told(steps))
    assert [number for number, ended in out if ended] == list(range(len(steps)))
    for number, _ in enumerate(steps):
        own = [ended for each, ended in out if each == number]
        assert own[-1]
        assert own.count(True) == 1


def test_a_call_that_reports_without_end_causes_one_event_a_second() -> None:
    async def count() -> int:
        tool = BoundTool(Endless(), ServerTool(definition=ToolDefinition(name="x"), time_limit=0.3))
        calls = ToolCalls(
            "r", {"x": tool}, turn=Turn(items=[]), max_calls=None, max_parallel=1, metrics=Metrics()
        )
        call = SimpleNamespace(id="1", name="x", arguments="{}", approval_request_id=None)
        async with AsyncExitStack() as sessions:
            out = [result async for _, result in calls.run([call], sessions)]
        assert out[-1] is not None
        assert out[-1].fault == "time_limit", "reports do not extend it"
        return len(out) - 1

    started = time.monotonic()
    number = asyncio.run(count())
    assert 1 <= number <= 1 + (time.monotonic() - started)


class Endless(ToolServer):
    label = "endless"

    async def call(self, call: ToolCall) -> ToolResult:
        for _ in itertools.count():
            call.report_progress()
            await asyncio.sleep(0)
        raise AssertionError
