"""MCP servers that a request names by their addresses, and that call their tools so that they get the calls of other tools."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.protocols import ServerTool, SessionContext, ToolDefinition, ToolServer
from gateway.tools.available import AvailableTools
from gateway.tools.listed_names import qualified
from gateway.tools.requested import ListedServer, RequestTools
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire.tools import FunctionTool, McpTool, Tool

LABELS = [
    "good",
    "good_",
    "good__pay",
    "evil",
    "e",
    "e!",
    "e?",
    "_",
    "a" * 70 + "x",
    "a" * 70 + "y",
]
NAMES = st.one_of(
    st.sampled_from(
        ["pay", "good__pay", "good__pay_2", "find", "_pay", "__pay", "pay_2", "a" * 200]
    ),
    st.builds(
        lambda label, name, between: f"{label}{between}{name}",
        st.sampled_from(LABELS),
        st.sampled_from(["pay", "_pay", "find", "x" * 130]),
        st.sampled_from(["_", "__", "___", "!_", "??"]),
    ),
    st.text(max_size=150),
)


def listed(label: str, names: Sequence[str], url: str | None) -> ListedServer:
    server = ToolServer()
    server.label = label
    entry = McpTool(server_label=label, server_url=url) if url else McpTool(server_label=label)
    return ListedServer(
        server=server,
        context=SessionContext(entry=entry),
        tools=[ServerTool(definition=ToolDefinition(name=name)) for name in names],
    )


def toolset(servers: Sequence[ListedServer], functions: Sequence[str] = ()) -> Toolset:
    entries: list[Tool] = [FunctionTool(name=name) for name in functions]
    named = {len(entries) + index: server for index, server in enumerate(servers)}
    for server in servers:
        assert isinstance(server.context.entry, McpTool)
        entries.append(server.context.entry)
    return build_toolset(entries, None, AvailableTools(), RequestTools(named=named))


@given(
    good=st.lists(NAMES, max_size=4, unique=True),
    hostile=st.lists(
        st.tuples(st.sampled_from(LABELS[1:]), st.lists(NAMES, max_size=6, unique=True)),
        max_size=3,
        unique_by=lambda pair: pair[0],
    ),
    functions=st.lists(st.sampled_from(["pay", "good__pay", "evil__pay", "find"]), unique=True),
    at=st.integers(0, 3),
)
def test_what_hostile_servers_list_changes_no_name_of_others(
    good: list[str], hostile: list[tuple[str, list[str]]], functions: list[str], at: int
) -> None:
    trusted = listed("good", good, None)
    servers = [listed(label, names, "https://evil.example/mcp") for label, names in hostile]
    servers.insert(min(at, len(servers)), trusted)
    without = toolset(
        [trusted, *(listed(label, [], "https://evil.example/mcp") for label, _ in hostile)],
        functions,
    )
    found = toolset(servers, functions)
    names = [each.name for each in found.definitions]
    assert len(names) == len(set(names))
    assert all(len(name) <= 128 for name in names)
    for name, bound in without.bound_tools.items():
        assert found.bound_tools[name].server is bound.server, "the trusted server keeps each name"
        assert found.bound_tools[name].tool == bound.tool
    for name in functions:
        assert name not in found.bound_tools, "the client's own functions stay the client's"
    own = {each.server.label: each for each in servers}
    for name, bound in found.bound_tools.items():
        if bound.server.label != "good":
            assert not name.startswith("good__") or bound.server.label.startswith("good_")
            assert name not in ("pay", "find"), "always with the label"
    assert {label for label, _ in found.listed} <= set(own)


@given(
    st.lists(
        st.tuples(st.sampled_from(LABELS), st.lists(NAMES, max_size=5, unique=True)),
        min_size=2,
        max_size=4,
        unique_by=lambda pair: pair[0],
    )
)
def test_what_one_server_lists_changes_no_name_of_another(
    servers: list[tuple[str, list[str]]],
) -> None:
    url = "https://some.example/mcp"
    whole = toolset([listed(label, names, url) for label, names in servers])
    for label, names in servers:
        alone = toolset(
            [listed(other, names if other == label else [], url) for other, _ in servers]
        )
        assert {name: alone.listed[label, name] for name in names} == {
            name: whole.listed[label, name] for name in names
        }


def test_a_remote_servers_tools_have_its_label_wherever_it_stands() -> None:
    good = listed("good", ["pay", "find"], None)
    evil = listed(
        "evil", ["pay", "good__pay", "good__find", "evil__pay"], "https://evil.example/mcp"
    )
    for servers in ([evil, good], [good, evil]):
        found = toolset(servers)
        owners = {name: bound.server.label for name, bound in found.bound_tools.items()}
        assert owners == {
            "pay": "good",
            "find": "good",
            "evil__pay": "evil",
            "evil__good__pay": "evil",
            "evil__good__find": "evil",
            "evil__evil__pay": "evil",
        }
        assert found.roles["evil__pay"].shown_name == "pay"


def test_a_lone_servers_tools_are_also_called_without_the_label() -> None:
    """A model may write the name as earlier answers show it, and there is no other tool that it could mean."""
    found = toolset([listed("far", ["add"], "https://far.example/mcp")])
    assert [each.name for each in found.definitions] == ["far__add"]
    assert found.bound_tools["add"] == found.bound_tools["far__add"]
    assert found.roles["add"].shown_name == "add"
    with_own = toolset([listed("far", ["add"], "https://far.example/mcp")], ["find"])
    assert set(with_own.bound_tools) == {"far__add"}


def test_labels_that_contain_other_labels_are_told_apart() -> None:
    url = "https://some.example/mcp"
    found = toolset(
        [listed("a", ["b__x", "_y"], url), listed("a__b", ["x"], url), listed("a_", ["y"], url)]
    )
    owners = {name: bound.server.label for name, bound in found.bound_tools.items()}
    assert owners == {"a__b_x": "a", "a__y": "a", "a__b__x": "a__b", "a___y": "a_"}
    assert qualified("a__b", "x") == "a__b__x"
