"""The toolset of a request: what the model is offered, who runs it, and how calls are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.plugins.protocols import (
    NamedTool,
    RenderedPrompt,
    ServerTool,
    SessionContext,
    ToolDefinition,
    ToolServer,
    Turn,
)
from gateway.tools.available import AvailableTools, BoundTool
from gateway.tools.client_functions import ClientFunction
from gateway.tools.requested import ListedServer, RequestTools
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire import tools as wire

CallType = Literal[
    "mcp_call", "code_interpreter_call", "web_search_call", "file_search_call", "shell_call"
]
NAMES = ("find", "add", "python", "a__find", "b__add", "clock")


class Served(ToolServer):
    """A server that accepts every request but those with one entry, and says which it accepted."""

    def __init__(self, label: str, refused: wire.Tool | None = None) -> None:
        self.label = label
        self.refused = refused
        self.accepted: list[SessionContext] = []

    async def tools(self) -> Sequence[ServerTool]:
        raise AssertionError("its tools are listed already")

    def check(self, context: SessionContext) -> None:
        if context.entry is not None and context.entry == self.refused:
            raise InvalidRequest("No.", param="container")
        self.accepted.append(context)


class Trained:
    """A renderer for models that were trained with some tools."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def render(self, turn: Turn) -> RenderedPrompt:
        raise AssertionError("nothing is rendered here")

    def knows_tool(self, name: str) -> bool:
        return name in self._names


def bound(
    server: ToolServer, name: str, item_type: CallType = "mcp_call", builtin: str | None = None
) -> BoundTool:
    own = None if builtin is None else ToolDefinition(name=builtin, kind="builtin")
    definition = ToolDefinition(name=name)
    return BoundTool(server, ServerTool(definition=definition, builtin=own, item_type=item_type))


def listed(label: str, *names: str, ask: Sequence[str] = (), url: str = "") -> ListedServer:
    """The tools of a server that the request gives by its address, if it has one."""
    entry = wire.McpTool(server_label=label, server_url=url or UNSET)
    return ListedServer(
        server=Served(label),
        context=SessionContext(entry=entry),
        tools=[ServerTool(definition=ToolDefinition(name=name)) for name in names],
        needs_approval=frozenset(ask),
    )


def mcp(label: str) -> wire.McpTool:
    return wire.McpTool(server_label=label)


def names_of(toolset: Toolset) -> list[str]:
    return [each.name for each in toolset.definitions]


def functions(*names: str) -> list[wire.FunctionTool]:
    return [wire.FunctionTool(name=name) for name in names]


@given(
    own=st.lists(st.sampled_from(NAMES), unique=True),
    brought=st.lists(st.sampled_from(NAMES), unique=True),
    always=st.lists(st.sampled_from(NAMES), unique=True),
    chosen=st.lists(st.sampled_from(NAMES), unique=True),
    a=st.lists(st.sampled_from(NAMES), unique=True),
    b=st.lists(st.sampled_from(NAMES), unique=True),
    given_by_address=st.booleans(),
)
def test_each_name_has_one_tool_and_a_clients_own_come_first(
    own: list[str],
    brought: list[str],
    always: list[str],
    chosen: list[str],
    a: list[str],
    b: list[str],
    given_by_address: bool,
) -> None:
    every, python = Served("every"), Served("python")
    offered = AvailableTools(
        by_type={"code_interpreter": [bound(python, name) for name in chosen]},
        always=[bound(every, name) for name in always],
    )
    tools: list[wire.Tool] = [mcp("a"), *functions(*own), mcp("b")]
    if chosen:
        tools.append(wire.CodeInterpreterTool())
    url = "https://a.example" if given_by_address else ""
    requested = RequestTools(named={0: listed("a", *a, url=url), len(own) + 1: listed("b", *b)})
    items: list[tuple[ParamPath, ClientFunction]] = [
        (("input", at), tool) for at, tool in enumerate(functions(*brought))
    ]
    toolset = build_toolset(tools, None, offered, requested, items)
    names = names_of(toolset)
    assert len({*names}) == len(names)
    assert {*names} <= {*toolset.roles}
    assert {*toolset.bound_tools} == {
        name for name, role in toolset.roles.items() if role.server_label
    }
    for name, each in toolset.bound_tools.items():
        assert toolset.roles[name].server_label == each.server.label
    client = {name for name, role in toolset.roles.items() if not role.server_label}
    assert {*own} <= client <= {*own, *brought}
    labels = [toolset.roles[name].server_label for name in names]
    for name in {*brought} - {*own} - client:
        assert name in chosen, "only what the client asks for takes its name"
    order = ["", "every", "b", "a"] if given_by_address else ["", "every", "a", "b"]
    found = [label for label in dict.fromkeys(labels) if label != "python"]
    assert found == [label for label in order if label in found]
    for label, there in (("a", a), ("b", b)):
        for name in there:
            shown = toolset.listed[label, name]
            assert toolset.bound_tools[shown].tool.definition.name == name
            entry = toolset.bound_tools[shown].context.entry
            assert isinstance(entry, wire.McpTool)
            assert entry.server_label == label
            assert toolset.roles[shown].server_label == label
            if label == "a" and given_by_address:
                assert shown.startswith("a__")


def test_a_request_without_tools_has_none() -> None:
    modes: tuple[Literal["none"] | None, ...] = (None, "none")
    for choice in modes:
        toolset = build_toolset([], choice, AvailableTools())
        assert [*toolset.definitions, *toolset.roles, *toolset.bound_tools] == []
        assert toolset.choice == (choice or "auto")
    with pytest.raises(InvalidRequest, match="no tools were given"):
        build_toolset([], "required", AvailableTools())


def test_two_tools_of_a_client_with_one_name_are_refused_by_the_second() -> None:
    inner = functions("find", "add", "find")
    namespace = wire.NamespaceTool(name="crm", description="", tools=[*inner])
    cases: list[tuple[Sequence[wire.Tool], ParamPath]] = [
        (functions("find", "find"), ("tools", 1)),
        ([*functions("crm__add"), namespace], ("tools", 1, "tools", 1)),
        ([namespace], ("tools", 0, "tools", 2)),
        ([wire.LocalShellTool(), *functions("local_shell")], ("tools", 1)),
    ]
    for tools, param in cases:
        with pytest.raises(InvalidRequest) as refused:
            build_toolset(tools, None, AvailableTools())
        assert refused.value.at[: len(param)] == param
        assert refused.value.code == "duplicate_tool_name"


def test_a_client_that_has_a_tool_of_the_gateways_name_runs_it() -> None:
    offered = AvailableTools(always=[bound(Served("every"), "find")])
    toolset = build_toolset(functions("find"), None, offered)
    assert toolset.roles["find"].item_type == "function_call"
    assert not toolset.bound_tools


@pytest.mark.parametrize("trained", [True, False])
def test_a_model_sees_a_built_in_tool_as_it_was_trained_with_it(trained: bool) -> None:
    browser = Served("browser")
    tools = [
        bound(browser, "web_search", "web_search_call", "browser.search"),
        bound(browser, "open_page", "web_search_call", "browser.open"),
    ]
    offered = AvailableTools(by_type={"web_search": tools})
    toolset = build_toolset(
        [wire.WebSearchPreviewTool()],
        wire.WebSearchChoice20250826(),
        offered,
        renderer=Trained("browser.search", *["browser.open"] * trained),
    )
    names = ["browser.search", "browser.open" if trained else "open_page"]
    assert names_of(toolset) == names
    assert toolset.choice == "required"
    assert [*toolset.bound_tools] == names
    assert {role.item_type for role in toolset.roles.values()} == {"web_search_call"}
    untrained = build_toolset([wire.WebSearchTool()], None, offered, renderer=object())
    assert names_of(untrained) == ["web_search", "open_page"]


@pytest.mark.parametrize(
    "item_type",
    ["mcp_call", "code_interpreter_call", "web_search_call", "file_search_call", "shell_call"],
)
def test_calls_are_shown_as_the_items_of_their_tool(item_type: CallType) -> None:
    server = Served("every")
    toolset = build_toolset([], None, AvailableTools(always=[bound(server, "x", item_type)]))
    role = toolset.roles["x"]
    assert (role.item_type, role.server_label, role.shown_name) == (item_type, "every", None)
    tool = ServerTool(definition=ToolDefinition(name="x"), item_type=item_type)
    asked = ListedServer(server=server, tools=[tool], needs_approval=frozenset({"x"}))
    for each, shown in (
        (ListedServer(server=server, tools=[tool]), item_type),
        (asked, "mcp_approval_request"),
    ):
        role = build_toolset([], None, AvailableTools(), RequestTools(offered=[each])).roles["x"]
        assert (role.item_type, role.server_label, role.shown_name) == (shown, "every", "x")


def test_a_server_is_told_of_the_request_and_its_entry_alone() -> None:
    python, every = Served("python"), Served("every")
    entry = wire.CodeInterpreterTool()
    offered = AvailableTools(
        by_type={"code_interpreter": [bound(python, "run"), bound(python, "stop")]},
        always=[bound(every, "clock")],
    )
    context = SessionContext(owner="ada")
    toolset = build_toolset([entry], None, offered, context=context)
    assert [(each.owner, each.entry) for each in python.accepted] == [("ada", entry)]
    assert [(each.owner, each.entry) for each in every.accepted] == [("ada", None)]
    for name, server in (("run", python), ("stop", python), ("clock", every)):
        assert toolset.bound_tools[name].context is server.accepted[0]


def test_an_entry_that_a_server_refuses_is_named() -> None:
    entry = wire.CodeInterpreterTool()
    offered = AvailableTools(
        by_type={"code_interpreter": [bound(Served("python", refused=entry), "run")]}
    )
    with pytest.raises(InvalidRequest) as refused:
        build_toolset([*functions("find"), entry], None, offered)
    assert refused.value.param == "tools[1].container"


def test_tools_that_are_not_available_are_omitted_once_in_their_order() -> None:
    tools: list[wire.Tool] = [
        wire.ImageGenerationTool(),
        wire.WebSearchTool(),
        wire.CodeInterpreterTool(),
        wire.WebSearchTool(),
        *functions("find"),
    ]
    toolset = build_toolset(tools, None, AvailableTools(unavailable="omit"))
    assert toolset.omitted == ("image_generation", "web_search", "code_interpreter")
    assert names_of(toolset) == ["find"]
    for choice in (wire.WebSearchPreviewChoice(), wire.ImageGenerationChoice()):
        with pytest.raises(InvalidRequest, match="demands a tool") as refused:
            build_toolset(tools, choice, AvailableTools(unavailable="omit"))
        assert refused.value.code == "unsupported_tool"
    with pytest.raises(InvalidRequest) as refused:
        build_toolset([*functions("find"), wire.WebSearchTool()], None, AvailableTools())
    assert refused.value.code == "unsupported_tool"
    assert refused.value.at[:2] == ("tools", 1)


def test_a_request_of_one_server_may_call_its_tools_without_the_label() -> None:
    """The model is not shown these names, and they are nobody's if the request has other tools."""
    server = listed("a", "find", "add", ask=["add"], url="https://a.example")
    alone = build_toolset([mcp("a")], None, AvailableTools(), RequestTools(named={0: server}))
    assert names_of(alone) == ["a__find", "a__add"]
    assert {*alone.roles} == {*alone.bound_tools} == {"a__find", "a__add", "find", "add"}
    assert alone.roles["add"] == alone.roles["a__add"]
    assert alone.bound_tools["find"] is alone.bound_tools["a__find"]
    beside = RequestTools(named={0: server}, offered=[listed("b", "y", url="https://b.example")])
    clock = AvailableTools(always=[bound(Served("every"), "clock")])
    for several in (
        build_toolset(
            [mcp("a"), *functions("x")], None, AvailableTools(), RequestTools(named={0: server})
        ),
        build_toolset([mcp("a")], None, AvailableTools(), beside),
        build_toolset([mcp("a")], None, clock, RequestTools(named={0: server})),
    ):
        assert "find" not in several.roles


def test_a_choice_is_of_what_the_model_sees() -> None:
    server = listed("a", "find", url="https://a.example")
    requested = RequestTools(named={0: server})

    def chosen(choice: Any) -> tuple[list[str], Any]:
        toolset = build_toolset([mcp("a")], choice, AvailableTools(), requested)
        return names_of(toolset), toolset.choice

    assert chosen(wire.FunctionChoice(name="find")) == (["a__find"], NamedTool("a__find"))
    assert chosen(wire.McpChoice(server_label="a", name="find"))[1] == NamedTool("a__find")
    assert chosen(wire.McpChoice(server_label="a")) == (["a__find"], "required")
