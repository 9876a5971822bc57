"""A `tool_choice` becomes the names that the model sees, or an error that names its place."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import GatewayError, InvalidRequest, Unsupported
from gateway.plugins.protocols import NamedTool, ToolChoice, ToolDefinition
from gateway.tools.client_run import CLIENT_TOOLS
from gateway.tools.roles import CallRole
from gateway.tools.tool_choice import KnownTools, resolve_choice
from gateway.wire.field_errors import MAX_TOOLS
from gateway.wire.tools import decode_tool_choice

KNOWN = KnownTools(
    roles={
        "find": CallRole(shown_name="find"),
        "crm__find": CallRole(namespace="crm", shown_name="find"),
        "crm__add": CallRole(namespace="crm", shown_name="add"),
        "one__twin": CallRole(namespace="one", shown_name="twin"),
        "two__twin": CallRole(namespace="two", shown_name="twin"),
        "docs__read": CallRole(item_type="mcp_call", server_label="docs", shown_name="read"),
        "docs__list": CallRole(item_type="mcp_call", server_label="docs", shown_name="list"),
        "python": CallRole(item_type="code_interpreter_call", server_label="python"),
        "web_search": CallRole(item_type="web_search_call", server_label="browser"),
        "open_page": CallRole(item_type="web_search_call", server_label="browser"),
        "shell": CallRole(item_type="shell_call"),
    },
    listed={("docs", "read"): "docs__read", ("docs", "list"): "docs__list"},
    by_type={
        "code_interpreter": ["python"],
        "web_search": ["web_search", "open_page"],
        "shell": ["container.exec"],
        "file_search": ["file_search"],
    },
    omitted={"image_generation"},
)
"""Tools of every kind. Those that search files are known to the gateway, but not offered in the request."""
DEFINITIONS = [ToolDefinition(name=name) for name in KNOWN.roles]


def resolved(sent: Any, known: KnownTools = KNOWN) -> tuple[list[str], ToolChoice]:
    choice = None if sent is None else decode_tool_choice(sent)
    definitions = [each for each in DEFINITIONS if each.name in known.roles]
    left, made = resolve_choice(choice, definitions, known)
    return [each.name for each in left], made


def allowed(*tools: Any, mode: str = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": [*tools]}


def mcp(**more: str) -> dict[str, Any]:
    return {"type": "mcp", **more}


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_a_mode_leaves_all_tools(mode: str) -> None:
    assert resolved(mode) == ([*KNOWN.roles], mode)


def test_without_a_choice_the_model_decides() -> None:
    assert resolved(None) == ([*KNOWN.roles], "auto")
    assert resolved(None, KnownTools(roles={}, listed={}, by_type={})) == ([], "auto")


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ({"type": "function", "name": "find"}, "find"),
        ({"type": "function", "name": "crm__find"}, "crm__find"),
        ({"type": "custom", "name": "add"}, "crm__add"),
        ({"type": "function", "name": "read"}, "docs__read"),
        (mcp(server_label="docs", name="list"), "docs__list"),
        ({"type": "code_interpreter"}, "python"),
        ({"type": "shell"}, "shell"),
    ],
)
def test_a_choice_of_one_tool_is_its_name_for_the_model(sent: Any, name: str) -> None:
    """By its own name before its name within a namespace; a client's tool before the gateway's of the same type."""
    assert resolved(sent) == ([*KNOWN.roles], NamedTool(name))


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        (mcp(server_label="docs"), ["docs__read", "docs__list"]),
        ({"type": "web_search"}, ["web_search", "open_page"]),
    ],
)
def test_a_choice_of_several_tools_requires_one_of_them(sent: Any, names: list[str]) -> None:
    assert resolved(sent) == (names, "required")


@pytest.mark.parametrize("mode", ["auto", "required"])
@given(st.data())
def test_allowed_tools_are_all_that_their_entries_name(mode: str, data: st.DataObject) -> None:
    entries = {
        "find": {"type": "function", "name": "find"},
        "crm__add": {"name": "add"},
        "docs__read": mcp(server_label="docs", name="read"),
        "docs__read docs__list": mcp(server_label="docs"),
        "web_search open_page": {"type": "web_search"},
        "python": {"type": "code_interpreter"},
        "shell": {"type": "shell"},
        "": {"type": "image_generation"},
    }
    chosen = data.draw(st.lists(st.sampled_from([*entries]).filter(bool), min_size=1, max_size=5))
    omitted = data.draw(st.sampled_from([[], [""]]))
    wanted = {name for names in chosen for name in names.split()}
    sent = allowed(*(entries[names] for names in [*omitted, *chosen]), mode=mode)
    assert resolved(sent) == ([name for name in KNOWN.roles if name in wanted], mode)


def test_no_allowed_tool_leaves_none() -> None:
    assert resolved(allowed()) == ([], "auto")
    assert resolved(allowed({"type": "image_generation"})) == ([], "auto")


LONG = "n" * 1000


@pytest.mark.parametrize(
    ("sent", "param", "words"),
    [
        ({"type": "function", "name": LONG}, "tool_choice.name", "not among the tools"),
        ({"type": "function", "name": "twin"}, "tool_choice.name", "'twin'"),
        (mcp(server_label=LONG), "tool_choice.server_label", "has no tools"),
        (mcp(server_label="docs", name=LONG), "tool_choice.name", "has no tool"),
        (mcp(server_label=LONG, name="read"), "tool_choice.name", "has no tool"),
        (allowed({"name": "find"}, {"name": LONG}), "tool_choice.tools[1].name", "not among"),
        (allowed(mcp(server_label=LONG)), "tool_choice.tools[0].server_label", "has no tools"),
        (
            allowed({"name": "find"}, mcp(server_label="docs", name=LONG)),
            "tool_choice.tools[1].name",
            "has no tool",
        ),
        (allowed({"type": "file_search"}), "tool_choice.tools[0]", "named by its type and name"),
        (allowed({}), "tool_choice.tools[0]", "named by its type and name"),
        (allowed(*[{"name": "find"}] * (MAX_TOOLS + 1)), "tool_choice.tools", "too long"),
        (allowed(mode="required"), "tool_choice", "demands a tool of type 'image_generation'"),
        ({"type": "image_generation"}, "tool_choice", "demands a tool of type 'image_generation'"),
        ({"type": "file_search"}, "tool_choice", "cannot be honoured"),
        ({"type": "local_shell"}, "tool_choice", "cannot be honoured"),
    ],
)
def test_what_cannot_be_chosen_is_refused_by_its_place(sent: Any, param: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as refused:
        resolved(sent)
    assert refused.value.param == param
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("omitted", "error"), [((), InvalidRequest), (["computer"], Unsupported)])
def test_a_tool_cannot_be_required_of_a_request_without_any(
    omitted: Collection[str], error: type[GatewayError]
) -> None:
    with pytest.raises(error) as refused:
        resolved("required", KnownTools(roles={}, listed={}, by_type={}, omitted=omitted))
    assert type(refused.value) is error
    assert refused.value.param == "tool_choice"
    assert refused.value.code == ("unsupported_tool" if omitted else None)


@pytest.mark.parametrize("kind", [each for each in CLIENT_TOOLS if each != "tool_search"])
def test_a_tool_that_the_client_runs_is_chosen_by_its_type(kind: str) -> None:
    known = KnownTools(roles={kind: CallRole()}, listed={}, by_type={kind: ["container.exec"]})
    assert resolved({"type": kind}, known)[1] == NamedTool(kind)
