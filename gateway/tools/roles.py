"""Call roles: who runs a tool's calls, and their item type."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


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


FUNCTION = CallRole()
"""The default: a function that the client runs."""
