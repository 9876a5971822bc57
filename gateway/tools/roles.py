"""Call roles: who runs a tool's calls, and their item type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from gateway.base.errors import ParamPath
from gateway.plugins.protocols import ToolDefinition


class CallRole(Struct, frozen=True, kw_only=True):
    """Who runs a tool's calls, and the item type in which they are shown."""

    item_type: Literal[
        "function_call",
        "custom_tool_call",
        "mcp_call",
        "code_interpreter_call",
        "web_search_call",
        "file_search_call",
        "mcp_approval_request",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "tool_search_call",
    ] = "function_call"
    server_label: str = ""
    namespace: str | None = None
    shown_name: str | None = None
    """The name that the client knows, if it differs from the model's (namespaced tools)."""
    parameters: Any = None
    """The schema of the arguments of a client's function."""

    @property
    def marks_encrypted(self) -> bool:
        """Whether the tool's schema requires that a call states which arguments are encrypted. The gateway encrypts
        none.

        Computed when the tool is called: a request may have many tools with large schemas.
        """
        properties = (
            self.parameters.get("properties") if isinstance(self.parameters, dict) else None
        )
        return isinstance(properties, dict) and any(
            isinstance(each, dict) and each.get("encrypted") is True for each in properties.values()
        )


class ClientTool(Struct, frozen=True):
    """A tool that the client runs."""

    definition: ToolDefinition
    role: CallRole
    param: ParamPath
    """The parameter that sets its name."""


FUNCTION = CallRole()
"""The default: a function that the client runs."""

NO_TOOL = CallRole(item_type="mcp_call", server_label="unknown")
"""The role of tools that do not exist. The gateway answers their calls with an error."""


def with_unknown(roles: Mapping[str, CallRole]) -> Mapping[str, CallRole]:
    """Extend `roles`: calls of tools that do not exist have the role `NO_TOOL`, so that the model can try again.

    Returns `roles` unchanged unless the gateway runs all tools: a client with its own tools gets such calls.
    """
    return _AnsweredRoles(roles) if roles and answers_unknown(roles) else roles


def answers_unknown(roles: Mapping[str, CallRole]) -> bool:
    """Whether the gateway answers calls of tools that do not exist. It does if it runs all tools."""
    return bool(roles) and all(role.server_label for role in roles.values())


class _AnsweredRoles(Mapping[str, CallRole]):
    """Maps every name to a role."""

    def __init__(self, roles: Mapping[str, CallRole]) -> None:
        self._roles = roles

    def __getitem__(self, name: str) -> CallRole:
        return self._roles.get(name, NO_TOOL)

    def __iter__(self) -> Iterator[str]:
        return iter(self._roles)

    def __len__(self) -> int:
        return len(self._roles)
