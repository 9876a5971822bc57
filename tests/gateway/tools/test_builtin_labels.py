"""Built-in tools selected by an MCP entry with their label, as vLLM takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.base.errors import GatewayError, Unsupported
from gateway.plugins.protocols import ServerTool, SessionContext, ToolDefinition, ToolServer
from gateway.tools.available import AvailableTools, BoundTool
from gateway.tools.requested import list_request_tools
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire import tools as wire

pytestmark = pytest.mark.anyio


class Builtin(ToolServer):
    def __init__(self, label: str, kind: str, names: dict[str, str]) -> None:
        self.label = label
        self.entries: list[wire.Tool | None] = []
        self._tools = [
            ServerTool(
                definition=ToolDefinition(name=name),
                builtin=ToolDefinition(name=own, kind="builtin"),
                request_type=kind,
                hints={"readOnlyHint": name != "shell"},
            )
            for name, own in names.items()
        ]

    async def tools(self) -> Sequence[ServerTool]:
        return self._tools

    def check(self, context: SessionContext) -> None:
        self.entries.append(context.entry)


BROWSER = {"web_search": "browser.search", "open_page": "browser.open", "find": "browser.find"}


async def resolved(*sent: Any, choice: Any = None, **kinds: Builtin) -> Toolset:
    tools = wire.decode_tools(list(sent))
    offered = AvailableTools(
        by_type={
            kind: [BoundTool(server, tool) for tool in await server.tools()]
            for kind, server in kinds.items()
        }
    )
    requested = await list_request_tools(
        tools, offered.choices, SessionContext(), builtins=offered.by_type
    )
    chosen = None if choice is None else wire.decode_tool_choice(choice)
    return build_toolset(tools, chosen, offered, requested)


def browser() -> Builtin:
    return Builtin("browser", "web_search", BROWSER)


def entry(label: str, **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": label, **more}


@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        ({}, list(BROWSER)),
        ({"allowed_tools": ["*"]}, list(BROWSER)),
        ({"allowed_tools": ["search"]}, ["web_search"]),
        ({"allowed_tools": ["browser.open", "find"]}, ["open_page", "find"]),
        ({"allowed_tools": {"tool_names": ["web_search", "other"]}}, ["web_search"]),
        ({"allowed_tools": {"read_only": True}}, list(BROWSER)),
        ({"allowed_tools": {"read_only": False}}, []),
        ({"allowed_tools": []}, []),
    ],
)
async def test_the_label_switches_and_allowed_tools_filters(
    allowed: dict[str, Any], names: list[str]
) -> None:
    toolset = await resolved(entry("web_search_preview", **allowed), web_search=browser())
    assert [each.name for each in toolset.definitions] == names
    assert [*toolset.bound_tools] == names


async def test_the_server_sees_an_entry_of_the_tools_own_type() -> None:
    python = Builtin("python", "code_interpreter", {"python": "python"})
    shell = Builtin("container", "shell", {"shell": "container.exec"})
    toolset = await resolved(
        entry("code_interpreter", require_approval="never"),
        entry("container", allowed_tools=["exec"]),
        code_interpreter=python,
        shell=shell,
    )
    assert [*toolset.bound_tools] == ["python", "shell"]
    assert isinstance(python.entries[-1], wire.CodeInterpreterTool)
    assert isinstance(shell.entries[-1], wire.ShellTool)


async def test_a_choice_may_name_the_label() -> None:
    choice = {"type": "mcp", "server_label": "web_search_preview", "name": "open_page"}
    toolset = await resolved(entry("web_search_preview"), choice=choice, web_search=browser())
    assert isinstance(toolset.choice, object)
    assert "open_page" in repr(toolset.choice)


@pytest.mark.parametrize("approval", ["always", {"never": {"tool_names": ["search"]}}])
async def test_approvals_are_refused_by_name(approval: Any) -> None:
    sent = entry("web_search_preview", require_approval=approval)
    with pytest.raises(Unsupported) as caught:
        await resolved(sent, web_search=browser())
    assert caught.value.param == "tools[0].require_approval"


@pytest.mark.parametrize(
    "sent",
    [
        entry("web_search_preview", server_url="https://search.example/mcp"),
        entry("code_interpreter"),
        entry("other"),
    ],
)
async def test_other_entries_mean_servers(sent: Any) -> None:
    with pytest.raises(GatewayError) as caught:
        await resolved(sent, web_search=browser())
    assert caught.value.code == "unsupported_tool"
