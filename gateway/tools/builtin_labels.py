"""Built-in tools that a request selects as MCP servers, by the labels that vLLM gives them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import UNSET

from gateway.base.errors import ParamPath, Unsupported
from gateway.plugins.protocols import ServerTool
from gateway.tools.available import BoundTool
from gateway.wire import tools as wire

_LABELS: Final[Mapping[str, wire.Tool]] = {
    "code_interpreter": wire.CodeInterpreterTool(),
    "container": wire.ShellTool(),
    "web_search_preview": wire.WebSearchTool(),
}
"""Maps each label to the equivalent entry."""


def builtin_of(tool: wire.Tool, types: Collection[str]) -> wire.Tool | None:
    """The entry that selects the built-in tool named by the label of the MCP entry `tool`. None if the entry selects an
    MCP server: it has an address, or another label.

    `types` are the types of the tools that the gateway runs itself.
    """
    if not isinstance(tool, wire.McpTool):
        return None
    addresses = (tool.server_url, tool.connector_id, tool.tunnel_id)
    if any(address is not UNSET for address in addresses):
        return None
    entry = _LABELS.get(tool.server_label)
    return entry if entry is not None and wire.type_of(entry) in types else None


def labelled(tools: Sequence[BoundTool], tool: wire.McpTool, param: ParamPath) -> list[BoundTool]:
    """The tools among `tools` that the MCP entry `tool` allows. Its label has selected `tools`. Raises `Unsupported` if
    the entry requires approval of their calls."""
    if tool.require_approval not in (UNSET, "never"):
        raise Unsupported(
            f"Calls of '{tool.server_label}' are not approved on this server. Send require_approval: 'never', or leave "
            "it out.",
            param=(*param, "require_approval"),
        )
    return [each for each in tools if _allows(tool, each.tool)]


def _allows(tool: wire.McpTool, offered: ServerTool) -> bool:
    """Whether `allowed_tools` contains the tool, by the gateway's name for it or by the model's (`browser.search`,
    `search`)."""
    wanted = tool.allowed_tools
    if isinstance(wanted, wire.McpToolFilter):
        if wanted.read_only is not UNSET:
            known = bool(offered.hints.get("readOnlyHint"))
            if known != wanted.read_only:
                return False
        wanted = wanted.tool_names
    if wanted is UNSET or "*" in wanted:
        return True
    names = {offered.definition.name}
    if offered.builtin is not None:
        names |= {offered.builtin.name, offered.builtin.name.rpartition(".")[2]}
    return not names.isdisjoint(wanted)
