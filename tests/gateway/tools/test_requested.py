"""The tools of the servers that a request selects: which are listed, and which need an approval."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.base.errors import InvalidRequest
from gateway.plugins.protocols import ServerTool, SessionContext, ToolDefinition, ToolServer
from gateway.tools.requested import (
    ListedServer,
    RequestTools,
    list_request_tools,
    list_without_approval,
    new_listings,
)
from gateway.wire import items
from gateway.wire import tools as wire

pytestmark = pytest.mark.anyio

READS = {"read": True, "write": False, "odd": None}
"""The tools of each server, and what it says of their reading only."""


class Shelf(ToolServer):
    """A server of three tools, of which those in `ask` need an approval."""

    def __init__(
        self, label: str, *, ask: Sequence[str] = (), error: Exception | None = None
    ) -> None:
        self.label = label
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._error = error
        self._tools = [
            ServerTool(
                definition=ToolDefinition(name=name),
                needs_approval=name in ask,
                hints={} if reads is None else {"readOnlyHint": reads},
            )
            for name, reads in READS.items()
        ]

    async def tools(self) -> Sequence[ServerTool]:
        self.asked += 1
        self.was_asked.set()
        await self.may_answer.wait()
        if self._error is not None:
            raise self._error
        return self._tools


class Shelves(ToolServer):
    """Servers that requests choose by their labels, and those that every request has."""

    request_type = "mcp"
    label = "shelves"

    def __init__(self, *shelves: Shelf, offered: Sequence[Shelf] = ()) -> None:
        self._shelves = {shelf.label: shelf for shelf in shelves}
        self._offered = offered

    def offered(self) -> Sequence[Shelf]:
        return self._offered

    def check(self, context: SessionContext) -> Shelf:
        assert isinstance(context.entry, wire.McpTool)
        return self._shelves[context.entry.server_label]


def mcp(label: str, **fields: Any) -> wire.McpTool:
    return wire.McpTool(server_label=label, **fields)


async def listed(
    entries: Sequence[wire.Tool], *shelves: Shelf, offered: Sequence[Shelf] = ()
) -> RequestTools:
    choices: Mapping[str, ToolServer] = {"mcp": Shelves(*shelves, offered=offered)}
    return await list_request_tools(entries, choices, SessionContext(owner="ada"))


def names_of(each: ListedServer) -> set[str]:
    return {tool.definition.name for tool in each.tools}


FILTERS = st.builds(
    wire.McpToolFilter,
    tool_names=st.just(UNSET) | st.lists(st.sampled_from([*READS])),
    read_only=st.sampled_from([UNSET, True, False]),
)


def fits(wanted: Any, name: str) -> bool:
    if not isinstance(wanted, wire.McpToolFilter):
        return False
    named = wanted.tool_names is UNSET or name in wanted.tool_names
    return named and (wanted.read_only is UNSET or bool(READS[name]) == wanted.read_only)


@given(
    allowed=st.just(UNSET) | st.lists(st.sampled_from([*READS, "other"])) | FILTERS,
    ask=st.sets(st.sampled_from([*READS])),
    wish=st.sampled_from([UNSET, "always", "never"])
    | st.builds(
        wire.McpApprovalFilter,
        always=st.just(UNSET) | FILTERS,
        never=st.just(UNSET) | FILTERS,
    ),
)
async def test_an_entry_decides_on_tools_and_approvals_and_else_the_server(
    allowed: Any, ask: set[str], wish: Any
) -> None:
    entry = mcp("a", allowed_tools=allowed, require_approval=wish)
    found = (await listed([entry], Shelf("a", ask=[*ask]))).named[0]
    there = {
        name
        for name in READS
        if allowed is UNSET
        or (name in allowed if isinstance(allowed, list) else fits(allowed, name))
    }
    assert names_of(found) == there
    if isinstance(wish, wire.McpApprovalFilter):
        need = {name for name in there if fits(wish.always, name) or not fits(wish.never, name)}
    else:
        need = {UNSET: ask & there, "always": there, "never": set()}[wish]
    assert found.needs_approval == need


async def test_servers_are_asked_at_the_same_time() -> None:
    first, second, offered = Shelf("a"), Shelf("b"), Shelf("c")
    shelves = (first, second, offered)
    for each in shelves:
        each.may_answer.clear()
    listing = asyncio.create_task(listed([mcp("a"), mcp("b")], first, second, offered=[offered]))
    for each in shelves:
        await each.was_asked.wait()
    for each in reversed(shelves):
        each.may_answer.set()
    found = await listing
    assert [each.server for each in found.named.values()] == [first, second]
    assert [each.server for each in found.offered] == [offered]


async def test_an_address_that_must_not_be_reached_is_told_by_its_entry_when_all_have_answered() -> (
    None
):
    refused = Shelf("b", error=InvalidRequest("No.", param="server_url"))
    slow = Shelf("a")
    slow.may_answer.clear()
    entries: list[wire.Tool] = [wire.FunctionTool(name="f"), mcp("a"), mcp("b")]
    listing = asyncio.create_task(listed(entries, slow, refused))
    await refused.was_asked.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not listing.done(), "the other server has not answered"
    slow.may_answer.set()
    with pytest.raises(InvalidRequest) as error:
        await listing
    assert error.value.param == "tools[2].server_url"


async def test_a_failure_without_words_is_told_by_its_name() -> None:
    found = (await listed([mcp("a")], Shelf("a", error=TimeoutError()))).named[0]
    assert (found.error, found.tools) == ("The tools could not be listed: TimeoutError", ())
    shown = found.listing()
    assert (shown.error, shown.tools) == (found.error, [])


async def test_a_server_is_named_once_and_then_not_offered_too() -> None:
    with pytest.raises(InvalidRequest) as refused:
        await listed([mcp("a"), wire.FunctionTool(name="f"), mcp("a")], Shelf("a"))
    assert refused.value.param == "tools[2].server_label"
    assert refused.value.code == "duplicate_server_label"
    own = Shelf("a")
    found = await listed([wire.FunctionTool(name="f"), mcp("a")], own, offered=[own, Shelf("b")])
    assert [*found.named] == [1]
    assert [each.server.label for each in found.offered] == ["b"]
    assert found.named[1].context == SessionContext(owner="ada", entry=mcp("a"))
    assert found.offered[0].context == SessionContext(owner="ada")
    assert own.asked == 1


@pytest.mark.parametrize("url", [UNSET, None, "https://a.example"])
def test_a_server_is_named_by_address_if_the_request_has_it(url: Any) -> None:
    context = SessionContext(entry=mcp("a", server_url=url))
    assert ListedServer(server=Shelf("a"), context=context).named_by_address == bool(url)
    assert not ListedServer(server=Shelf("a")).named_by_address


async def test_where_nobody_approves_tools_that_need_it_are_left_out() -> None:
    shelf = Shelf("a", ask=["write"])
    away = Shelf("b", error=OSError())
    found = await list_without_approval([shelf, away, shelf], SessionContext(owner="ada"))
    [only] = found.offered
    assert names_of(only) == {"read", "odd"}
    assert (shelf.asked, away.asked, found.named) == (1, 1, {})


def test_a_list_has_what_the_server_says_of_each_tool() -> None:
    schema = {"type": "object", "properties": {"x": {}}}
    described = ToolDefinition(name="f", description="", parameters=schema)
    tools = [
        ServerTool(definition=described, hints={"title": "F"}),
        ServerTool(definition=ToolDefinition(name="g")),
    ]
    shown = ListedServer(server=Shelf("a"), tools=tools).listing()
    assert (shown.server_label, shown.error) == ("a", UNSET)
    first, second = shown.tools
    assert (first.name, first.description, first.input_schema) == ("f", "", schema)
    assert first.annotations == {"title": "F"}
    assert (second.description, second.annotations) == (UNSET, UNSET)
    assert second.input_schema == {"type": "object"}


def test_a_list_is_shown_once_in_a_conversation_unless_it_failed() -> None:
    a, b = ListedServer(server=Shelf("a")), ListedServer(server=Shelf("b"))
    requested = RequestTools(named={0: a, 3: b}, offered=[ListedServer(server=Shelf("c"))])

    def shown(*context: items.Item) -> list[str]:
        return [each.server_label for each in new_listings(requested, context)]

    failed = items.McpListTools(server_label="a", tools=[], error="away")
    assert shown() == ["a", "b"]
    assert shown(a.listing()) == ["b"]
    assert shown(failed) == ["a", "b"]
    assert shown(failed, a.listing(), b.listing()) == []
