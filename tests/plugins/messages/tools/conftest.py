"""A gateway with tools that it runs, what its model does with them, and the vendor's own client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic import Anthropic

from gateway import hookimpl
from gateway.plugins.protocols import (
    CallRecord,
    CodeDetails,
    SearchDetails,
    ServerTool,
    SessionContext,
    ShellDetails,
    Source,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
    ToolSession,
)
from gateway.tools.functions import functions
from gateway.wire import items
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

PAGE = "https://tower.example/facts"
MCP_SERVER = Path(__file__).parents[2] / "mcp" / "mcp_example_server.py"

RULES: list[dict[str, Any]] = [
    {"when": "how tall", "pieces": [
        {"reasoning": "I search."}, {"call": {"name": "search", "arguments": {"query": "tower"}}}]},
    {"when": "312 metres", "pieces": [
        {"text": "The tower is of iron 【0†L1】【0†L2-L3】. It is tall【0†L2】, I think 【9†L2】."}]},
    {"when": "open the page", "pieces": [
        {"call": {"name": "open", "arguments": {"id": PAGE}}}]},
    {"when": "The page says", "pieces": [{"text": "It says so【1†L0】."}]},
    {"when": "who said so", "pieces": [{"text": "As I said: iron【0†L1】."}]},
    {"when": "both tools", "pieces": [
        {"call": {"name": "search", "arguments": {"query": "tower"}}},
        {"call": {"name": "get_weather", "arguments": {"city": "Oslo"}}},
        {"call": {"name": "python", "arguments": {"code": "print(\"é\")"}}}]},
    {"when": "compute it", "pieces": [
        {"text": "I compute."}, {"call": {"name": "python", "arguments": {"code": "1 + 1\n"}}}]},
    {"when": "code gave", "pieces": [{"text": "It is two."}]},
    {"when": "list files", "pieces": [
        {"call": {"name": "shell", "arguments": {"commands": ["ls", "cat b"]}}}]},
    {"when": "no such file", "pieces": [{"text": "One file."}]},
    {"when": "please add", "pieces": [{"call": {"name": "add", "arguments": {"a": 2, "b": 3}}}]},
    {"when": "The sum is", "pieces": [{"text": "It is five."}]},
    {"when": "search for nothing", "pieces": [
        {"call": {"name": "search", "arguments": {"query": "nothing"}}}]},
    {"when": "search failed", "pieces": [{"text": "I found nothing."}]},
    {"when": "twice over", "pieces": [
        {"call": {"name": "search", "arguments": {"query": "nothing"}}},
        {"call": {"name": "search", "arguments": {"query": "tower"}}}]},
    {"when": "limit on calls of this tool", "pieces": [{"text": "No more."}]},
    {"when": "for ever", "pieces": [{"call": {"name": "search", "arguments": {"query": "again"}}}]},
    {"when": "take your time", "pieces": [
        {"call": {"name": "search", "arguments": {"query": "slow"}}}]},
    {"when": "roll a die", "pieces": [{"call": {"name": "roll", "arguments": {}}}]},
    {"when": "it rolled", "pieces": [{"text": "Four."}]},
    {"when": "half a search", "finish": "length", "pieces": [
        {"raw": "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"to"}]},
]  # fmt: skip
FOUND = "[0] Search results\n\nL0: Tower facts\nL1: It is of iron.\nL2: It is 312 metres high.\nL3: So it is."


class Web(ToolServer):
    """Searching and opening, of one site."""

    label = "browser"

    def __init__(self) -> None:
        self.convert_request: list[tuple[str, Any]] = []
        self.known: list[Mapping[str, CallRecord]] = []
        self.closed = 0

    async def tools(self) -> Sequence[ServerTool]:
        return [
            ServerTool(
                definition=ToolDefinition(
                    name=name,
                    parameters={"type": "object", "properties": {argument: {"type": "string"}}},
                ),
                request_type="web_search",
                item_type="web_search_call",
                time_limit=20,
            )
            for name, argument in (("search", "query"), ("open", "id"))
        ]

    def check(self, context: SessionContext) -> None:
        if context.entry is not None:
            self.convert_request.append(("entry", context.entry))

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[ToolSession]:
        self.known.append(dict(context.calls))
        try:
            yield self
        finally:
            self.closed += 1

    async def call(self, call: ToolCall) -> ToolResult:
        name, arguments = call.name, call.arguments
        self.convert_request.append((name, arguments))
        if name == "open":
            return ToolResult(
                text="[1] Facts\n\nL0: The page says so.",
                details=SearchDetails(action=items.OpenPageAction(url=arguments["id"])),
                sources=[Source(cursor=1, url=arguments["id"], title="Facts")],
            )
        query = arguments["query"]
        action = items.SearchAction(query=query, queries=[query])
        if query == "slow":
            await asyncio.sleep(30)
        if query == "nothing":
            return ToolResult(
                text="The search failed: nobody there.",
                failed=True,
                details=SearchDetails(action=action),
            )
        text = "Search for ever." if query == "again" else FOUND
        sources = [
            Source(cursor=0, url=PAGE, title="Tower facts", lines=(0, 4)),
            Source(cursor=0, url="https://other.example/", title="", lines=(5, 9)),
        ]
        urls = [items.UrlSource(url=each.url) for each in sources]
        details = SearchDetails(action=msgspec.structs.replace(action, sources=urls))
        return ToolResult(text=text, details=details, sources=sources)


class Code(ToolServer):
    """Python and a shell that answer what they are told to."""

    label = "code"

    def __init__(self, name: str, request_type: Any, item_type: Any, result: ToolResult) -> None:
        self._tool = ServerTool(
            definition=ToolDefinition(name=name), request_type=request_type, item_type=item_type
        )
        self._result = result

    async def tools(self) -> Sequence[ServerTool]:
        return [self._tool]

    async def call(self, call: ToolCall) -> ToolResult:
        return self._result


def roll() -> str:
    """Roll a die."""
    return "it rolled 4"


class ServedToolsPlugin:
    def __init__(self) -> None:
        self.web = Web()
        outcome, failed = items.ShellExit(exit_code=0), items.ShellExit(exit_code=1)
        self.servers: dict[str, Any] = {
            "web": self.web,
            "snake": Code(
                "python",
                "code_interpreter",
                "code_interpreter_call",
                ToolResult(text="code gave 2", details=CodeDetails(container_id="c")),
            ),
            "sh": Code(
                "shell",
                "shell",
                "shell_call",
                ToolResult(
                    text="a\nno such file",
                    details=ShellDetails(
                        output=[
                            items.ShellOutput(stdout="a\n", stderr="", outcome=outcome),
                            items.ShellOutput(stdout="", stderr="no such file\n", outcome=failed),
                        ]
                    ),
                ),
            ),
        }

    @asynccontextmanager
    async def _open(self, name: str, config: Any) -> AsyncIterator[Any]:
        yield self.servers[name]

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        for name in self.servers:
            register(name, partial(self._open, name))
        register("dice", functions("dice", roll))


def config(*tools: str, server: Any = None, **routes: Any) -> dict[str, Any]:
    """The configuration of a gateway with these tools."""
    known: dict[str, Any] = {
        "mcp": {"servers": {"ex": {"command": [sys.executable, str(MCP_SERVER), "stdio"]}}}
    }
    return {
        "server": server or {},
        "apis": {"messages": routes},
        "tools": {name: known.get(name, {}) for name in tools},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
    }


@pytest.fixture(scope="session")
def served_plugin() -> ServedToolsPlugin:
    return ServedToolsPlugin()


@pytest.fixture(scope="session")
def served_gateway(
    tmp_path_factory: pytest.TempPathFactory, served_plugin: ServedToolsPlugin
) -> Iterator[RunningGateway]:
    made = config("web", "snake", "sh", "mcp", "dice", max_turns=3)
    with run_gateway(made, tmp_path_factory.mktemp("served"), plugins=[served_plugin]) as running:
        yield running


@pytest.fixture
def root(served_gateway: RunningGateway) -> str:
    return served_gateway.base_url.removesuffix("/v1")


@pytest.fixture
def claude(root: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def engine(served_gateway: RunningGateway) -> ScriptedEngine:
    found = served_gateway.services.models["m"].engine
    assert isinstance(found, ScriptedEngine)
    return found


@pytest.fixture
def served_web(served_plugin: ServedToolsPlugin) -> Web:
    return served_plugin.web


@pytest.fixture
def run_served(tmp_path: Path) -> Callable[..., Any]:
    """A gateway of its own: `run_served("dice", offer_tools=True)`."""
    return lambda *tools, **routes: run_gateway(
        config(*tools, **routes), tmp_path, plugins=[ServedToolsPlugin()]
    )
