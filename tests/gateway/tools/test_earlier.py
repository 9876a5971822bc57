"""The earlier calls that a tool session is told of: all of the conversation and the response, of any tool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from gateway import hookimpl
from gateway.plugins.protocols import (
    CallRecord,
    ServerTool,
    SessionContext,
    Source,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
    ToolSession,
)
from gateway.tools.call_history import NOT_STORED
from gateway.tools.earlier import earlier_calls
from gateway.wire.item_decoding import decode_items
from gateway.wire.tools import WebSearchTool
from gateway_testing.server import RunningGateway, run_gateway

SENT: Any = [
    {"role": "user", "content": "hello"},
    {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "add", "namespace": "sums",
     "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": [
        {"type": "input_text", "text": "three"}, {"type": "input_image", "image_url": "data:,"}]},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "b", "name": "say", "input": "hi"},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "look", "arguments": "{}",
     "output": "seen"},
    {"type": "mcp_call", "id": "mcp_2", "server_label": "s", "name": "look", "arguments": "not JSON",
     "error": "nobody"},
    {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "c", "output": [
        {"stdout": "x", "stderr": "y", "outcome": {"type": "exit", "exit_code": 1}},
        {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]},
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "d", "action": {
        "type": "exec", "command": ["ls"], "env": {}}},
    {"type": "local_shell_call_output", "id": "d", "output": "z"},
    {"type": "apply_patch_call", "id": "apc_1", "call_id": "e", "operation": {
        "type": "delete_file", "path": "p"}},
    {"type": "apply_patch_call_output", "call_id": "e", "status": "completed"},
    {"type": "tool_search_call", "id": "tsc_1", "call_id": "f", "arguments": {"query": "q"}},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}},
    {"type": "web_search_call", "id": "ws_2", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": [{"text": "found"}, {}]},
    {"type": "computer_call", "id": "cu_1", "call_id": "g", "action": {}},
    {"type": "function_call_output", "call_id": "nobody's", "output": "lost"},
    {"type": "code_interpreter_call", "id": "ci_1", "container_id": "c", "code": "1", "outputs": [
        {"type": "logs", "logs": "1"}, {"type": "image", "url": "data:,"}]},
]  # fmt: skip


def test_every_call_is_among_them_with_what_its_items_show() -> None:
    known = CallRecord(name="browser.search", arguments="{}", result="what was read")
    calls = earlier_calls(decode_items(SENT), {"ws_2": known, "ws_9": known})
    sent = [each["id"] for each in SENT if each.get("type", "").endswith("_call")]
    assert [*calls] == [each for each in sent if each != "cu_1"], "all whose result is text"
    assert calls["ws_2"] is known
    told = {key: (each.name, each.arguments, each.result) for key, each in calls.items()}
    assert told["fc_1"] == ("sums__add", "{}", "three")
    assert told["ctc_1"] == ("say", '{"input": "hi"}', "")
    assert told["mcp_1"] == ("look", "{}", "seen")
    assert "nobody" in told["mcp_2"][2]
    assert told["sh_1"][2] == "x\ny\n(exit code 1)\n(timed out)"
    assert told["lsh_1"][2] == "z"
    assert told["apc_1"][2] == "completed"
    assert told["tsc_1"][2] == ""
    assert told["ws_1"][2] == NOT_STORED
    assert told["fs_1"] == ("file_search", '{"queries": ["q"]}', "found")
    assert told["ci_1"] == ("code_interpreter", '{"code": "1"}', "1\n(an image)")


class Diary(ToolServer):
    """Keeps what its sessions are told."""

    def __init__(self, name: str) -> None:
        self.label = name
        self.contexts: list[SessionContext] = []

    async def tools(self) -> Sequence[ServerTool]:
        asked = ServerTool(definition=ToolDefinition(name="asked"), request_type="web_search")
        always = ServerTool(definition=ToolDefinition(name=self.label))
        return [always, asked] if self.label == "one" else [always]

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[ToolSession]:
        self.contexts.append(context)
        yield self

    async def call(self, call: ToolCall) -> ToolResult:
        source = Source(cursor=0, url="https://a.test/")
        return ToolResult(text=f"{call.name} ran", sources=[source])


class Plugin:
    def __init__(self) -> None:
        self.servers = {name: Diary(name) for name in ("one", "two")}

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        def opening(name: str) -> Any:
            @asynccontextmanager
            async def opened(config: Any) -> AsyncIterator[Diary]:
                yield self.servers[name]

            return opened

        for name in self.servers:
            register(name, opening(name))


def calling(name: str) -> dict[str, Any]:
    return {"call": {"name": name, "arguments": {"of": name}}}


RULES = [
    {"when": "both", "pieces": [calling("one"), calling("asked")]},
    {"when": "begin", "pieces": [calling("one")]},
    {"when": "again", "pieces": [calling("two")]},
    {"when": "one ran", "pieces": [calling("two")]},
    {"when": "two ran", "pieces": [{"text": "Done."}]},
]


@pytest.fixture(scope="module")
def plugin() -> Plugin:
    return Plugin()


@pytest.fixture(scope="module")
def gateway(plugin: Plugin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"chat_tools": ["one", "two"]},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        "tools": {"one": {}, "two": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("earlier"), plugins=[plugin]) as running:
        yield running


def test_a_session_is_told_of_the_calls_of_its_response_and_of_the_history(
    gateway: RunningGateway, plugin: Plugin
) -> None:
    def respond(**body: Any) -> Any:
        answer = httpx.post(f"{gateway.base_url}/responses", json={"model": "m", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    first = respond(input="begin")
    [one], [two] = plugin.servers["one"].contexts, plugin.servers["two"].contexts
    assert one.response_id == two.response_id == first["id"]
    assert one.calls == {}
    [ran] = [item for item in first["output"] if item.get("name") == "one"]
    assert list(two.calls) == [ran["id"]]
    record = two.calls[ran["id"]]
    assert (record.name, record.arguments, record.result) == ("one", ran["arguments"], "one ran")
    assert [source.url for source in record.sources] == ["https://a.test/"]

    forged = {"type": "function_call", "call_id": "x", "name": "any", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "x", "output": "again"}
    respond(input=[forged, output], previous_response_id=first["id"])
    later = plugin.servers["two"].contexts[-1]
    assert [call.name for call in later.calls.values()] == ["one", "two", "any"]
    assert list(later.calls)[:2] == [
        item["id"] for item in first["output"] if item["type"] == "mcp_call"
    ]
    assert len(later.items) > 3


def test_each_choice_of_a_chat_completion_has_sessions_of_its_own(
    gateway: RunningGateway, plugin: Plugin
) -> None:
    for server in plugin.servers.values():
        server.contexts.clear()
    messages = [{"role": "user", "content": "begin"}]
    answer = httpx.post(
        f"{gateway.base_url}/chat/completions",
        json={"model": "m", "messages": messages, "n": 2},
    )
    assert answer.status_code == 200, answer.text
    contexts = plugin.servers["two"].contexts
    assert len({context.response_id for context in contexts}) == 2
    assert [[call.name for call in each.calls.values()] for each in contexts] == [["one"]] * 2
    assert all(each.items for each in contexts)


def test_a_session_has_the_entry_that_selects_its_tools(
    gateway: RunningGateway, plugin: Plugin
) -> None:
    """A server's other tools, which every request has, have a session of their own."""
    server = plugin.servers["one"]
    server.contexts.clear()
    tools = [{"type": "web_search", "search_context_size": "low"}]
    answer = httpx.post(
        f"{gateway.base_url}/responses", json={"model": "m", "input": "both", "tools": tools}
    )
    assert answer.json()["status"] == "completed", answer.text
    always, asked = server.contexts
    assert always.entry is None
    assert isinstance(asked.entry, WebSearchTool)
    assert asked.entry.search_context_size == "low"
