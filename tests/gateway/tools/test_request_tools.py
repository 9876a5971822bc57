"""Tools of servers that requests choose from: names, approvals that are cut off, and what is shown of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import CallArgumentsDelta, CallEnded, CallStarted
from gateway.base.errors import InvalidRequest, ParamPath
from gateway.items.assembler import ResponseAssembler
from gateway.plugins.protocols import (
    NamedTool,
    ServerTool,
    SessionContext,
    ToolDefinition,
    ToolServer,
)
from gateway.tools.approved import approved_calls
from gateway.tools.available import AvailableTools
from gateway.tools.credentials import without_credentials
from gateway.tools.requested import (
    ListedServer,
    RequestTools,
    list_request_tools,
)
from gateway.tools.toolset import build_toolset
from gateway.wire import items
from gateway.wire import tools as wire
from gateway.wire.common import encode
from gateway.wire.response import Response
from gateway.wire.tools import FunctionTool, McpChoice, McpTool
from gateway_testing.grammar import fold

pytestmark = pytest.mark.anyio


class LruMapping(ToolServer):
    """A server with tools of given names."""

    def __init__(self, label: str, *names: str, failure: Exception | None = None) -> None:
        self.label = label
        self._names = names
        self._failure = failure

    async def tools(self) -> Sequence[ServerTool]:
        if self._failure is not None:
            raise self._failure
        return [ServerTool(definition=ToolDefinition(name=name)) for name in self._names]


class Shelves(ToolServer):
    """Servers by label."""

    request_type = "mcp"

    def __init__(self, *shelves: LruMapping, offered: Sequence[LruMapping] = ()) -> None:
        self._shelves = {shelf.label: shelf for shelf in shelves}
        self._offered = offered

    def offered(self) -> Sequence[LruMapping]:
        return self._offered

    def check(self, context: SessionContext) -> LruMapping:
        tool = context.entry
        assert isinstance(tool, McpTool)
        if tool.server_label not in self._shelves:
            raise InvalidRequest("unknown", param="server_label")
        return self._shelves[tool.server_label]


def listed(label: str, *names: str, ask: Sequence[str] = ()) -> ListedServer:
    return ListedServer(
        server=LruMapping(label),
        tools=[ServerTool(definition=ToolDefinition(name=name)) for name in names],
        needs_approval=frozenset(ask),
    )


def mcp(label: str, **fields: Any) -> McpTool:
    return McpTool(server_label=label, **fields)


def test_names_that_clash_are_told_apart_and_shown_as_they_are() -> None:
    entries = [mcp("a"), mcp("b"), FunctionTool(name="find")]
    requested = RequestTools(named={0: listed("a", "find", "add"), 1: listed("b", "add", "add!")})
    toolset = build_toolset(entries, None, AvailableTools(), requested)
    assert [each.name for each in toolset.definitions] == [
        "find",
        "a__find",
        "add",
        "b__add",
        "add_",
    ]
    assert toolset.roles["find"].item_type == "function_call", "the client's own comes first"
    assert toolset.roles["b__add"].shown_name == "add"
    assert toolset.bound_tools["b__add"].tool.definition.name == "add"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=200)), max_size=12, unique=True))
def test_whatever_servers_call_their_tools_the_model_is_told_clean_and_distinct_names(
    pairs: list[tuple[str, str]],
) -> None:
    named = {
        index: listed(label, *[name for owner, name in pairs if owner == label])
        for index, label in enumerate("ab")
    }
    toolset = build_toolset([mcp("a"), mcp("b")], None, AvailableTools(), RequestTools(named=named))
    names = [each.name for each in toolset.definitions]
    assert len(names) == len(set(names)) == len(pairs)
    assert all(len(name) <= 128 and set(name) <= _CLEAN for name in names)
    assert set(toolset.listed) == set(pairs)


_CLEAN = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def test_a_choice_of_a_server_is_a_choice_among_its_tools() -> None:
    requested = RequestTools(named={0: listed("a", "x"), 1: listed("b", "x", "y")})
    entries = [mcp("a"), mcp("b")]

    def chosen(choice: wire.ToolChoice) -> Any:
        toolset = build_toolset(entries, choice, AvailableTools(), requested)
        return toolset.choice, {each.name for each in toolset.definitions}

    assert chosen(McpChoice(server_label="b")) == ("required", {"b__x", "y"})
    assert chosen(McpChoice(server_label="b", name="x"))[0] == NamedTool("b__x")
    allowed = wire.AllowedToolsChoice(mode="auto", tools=[{"type": "mcp", "server_label": "a"}])
    assert chosen(allowed) == ("auto", {"x"})
    with pytest.raises(InvalidRequest):
        chosen(McpChoice(server_label="c"))
    with pytest.raises(InvalidRequest):
        chosen(McpChoice(server_label="a", name="y"))


async def test_servers_are_listed_and_one_that_fails_is_shown_with_its_error() -> None:
    down = LruMapping("down", failure=OSError("no way"))
    shelves = Shelves(LruMapping("a", "x"), down, offered=[LruMapping("o", "z"), down])
    found = await list_request_tools([mcp("a"), mcp("down")], {"mcp": shelves}, SessionContext())
    assert found.named[1].error == "The tools could not be listed: no way"
    assert [tool.definition.name for tool in found.named[0].tools] == ["x"]
    assert [each.server.label for each in found.offered] == ["o"]


async def test_an_entry_that_is_refused_is_named() -> None:
    with pytest.raises(InvalidRequest) as refused:
        await list_request_tools(
            [mcp("a"), mcp("b")], {"mcp": Shelves(LruMapping("a"))}, SessionContext()
        )
    assert refused.value.param == "tools[1].server_label"


async def test_without_any_servers_an_entry_is_an_unsupported_tool() -> None:
    found = await list_request_tools([mcp("a")], {}, SessionContext())
    with pytest.raises(InvalidRequest, match="not available"):
        build_toolset([mcp("a")], None, AvailableTools(), found)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.net/mcp", "https://a.net/mcp"),
        ("https://me:secret@a.net:1/mcp?key=secret#secret", "https://a.net:1/mcp"),
        ("https://a.net/a@b", "https://a.net/a@b"),
        ("https://a.net?x=//secret@", "https://a.net"),
    ],
)
def test_what_is_shown_of_an_entry_has_no_credentials(url: str, shown: str) -> None:
    entry = mcp("a", server_url=url, authorization="secret", headers={"X": "secret"})
    [clean] = without_credentials([entry])
    assert isinstance(clean, McpTool)
    assert clean.server_url == shown
    assert b"secret" not in encode(clean)


def assembler(ask: Sequence[str] = ("add",)) -> ResponseAssembler:
    requested = RequestTools(named={0: listed("a", "add", ask=ask)})
    toolset = build_toolset([mcp("a")], None, AvailableTools(), requested)
    number = itertools.count()
    response = Response(id="resp_1", created_at=0, status="in_progress", model="m")
    return ResponseAssembler(
        response,
        roles=toolset.roles,
        new_id=lambda prefix: f"{prefix}{next(number)}",
        clock=lambda: 0.0,
    )


def folded(made: ResponseAssembler, *batches: Any) -> dict[str, Any]:
    told = [event for batch in batches for event in batch]
    told += made.finish(None)
    told.append(made.terminal())
    return fold(json.loads(encode(event)) for event in told)


@pytest.mark.parametrize("written", ["", '{"a": ', '{"a": 1'])
def test_an_approval_request_that_was_cut_off_cannot_be_run(written: str) -> None:
    """Half the arguments are not what the model wanted; approving them gives a failed call."""
    made = assembler()
    deltas = [CallStarted(name="add"), *([CallArgumentsDelta(written)] if written else [])]
    response = folded(made, made.start(), made.feed(deltas), made.end((), "length"))
    [asked] = response["output"]
    assert response["status"] == "incomplete"
    assert asked["type"] == "mcp_approval_request"
    with pytest.raises(ValueError):
        json.loads(asked["arguments"])


def test_a_complete_approval_request_ends_the_clients_turn() -> None:
    made = assembler()
    deltas = [
        CallStarted(name="add"),
        CallArgumentsDelta('{"a"'),
        CallArgumentsDelta(": 1}"),
        CallEnded(),
    ]
    out = [made.start(), made.feed(deltas), made.end((), "stop")]
    assert made.items.calls_client
    assert not made.items.pending_calls
    [asked] = folded(made, *out)["output"]
    assert (asked["arguments"], asked["name"], asked["server_label"]) == ('{"a": 1}', "add", "a")


def test_an_approved_call_that_the_response_does_not_live_to_see_is_closed() -> None:
    made = assembler()
    started = made.start()
    call = made.approved_call("add", '{"a": 1}', "mcpr_x")
    [item] = folded(made, started, call)["output"]
    assert (item["status"], item["approval_request_id"]) == ("incomplete", "mcpr_x")


def test_only_what_was_asked_and_not_yet_run_is_run() -> None:
    asked = items.McpApprovalRequest(id="mcpr_1", server_label="a", name="add", arguments="{}")
    yes = items.McpApprovalResponse(id="mcpa_1", approval_request_id="mcpr_1", approve=True)
    names = {("a", "add"): "a__add"}
    checked: list[tuple[items.McpApprovalRequest, ParamPath]] = []

    def check(request: items.McpApprovalRequest, param: ParamPath) -> None:
        checked.append((request, param))

    [call] = approved_calls([yes], [asked], names, check)
    assert checked == [(asked, ("input", 0, "approval_request_id"))]
    assert (call.request_id, call.name, call.arguments) == ("mcpr_1", "a__add", "{}")
    run = items.McpCall(
        id="mcp_1", server_label="a", name="add", arguments="{}", approval_request_id="mcpr_1"
    )
    assert approved_calls([yes], [asked, run], names, check) == []
