"""Choosing the item builder for a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias, assert_never

from gateway.base.deltas import CallStarted
from gateway.items.builders import (
    ApprovalRequestBuilder,
    ClientCallBuilder,
    CodeInterpreterCallBuilder,
    CustomCallBuilder,
    FileSearchCallBuilder,
    FunctionCallBuilder,
    McpCallBuilder,
    ServerCallBuilder,
    ShellCallBuilder,
    WebSearchCallBuilder,
)
from gateway.tools.client_run import id_prefix
from gateway.tools.roles import FUNCTION, CallRole
from gateway.wire import items

OpenCall: TypeAlias = (
    FunctionCallBuilder
    | CustomCallBuilder
    | ApprovalRequestBuilder
    | ClientCallBuilder
    | ServerCallBuilder
)


def open_call(
    delta: CallStarted,
    roles: Mapping[str, CallRole],
    new_id: Callable[[str], str],
    include: Collection[str] | None,
    approval_id: Callable[[str, str, str], str] | None,
) -> OpenCall:
    """Create the builder of a call's item. The role of the called tool determines the item's type.

    For `new_id`, `include` and `approval_id` see `ResponseAssembler`.
    """

    def shows(part: str) -> bool:
        return include is None or part in include

    role = roles.get(delta.name, FUNCTION)
    name = role.shown_name or delta.name
    match role.item_type:
        case "function_call":
            call_id = delta.call_id or new_id("call_")
            return FunctionCallBuilder(
                new_id("fc_"),
                call_id,
                name,
                role.namespace,
                marks_encrypted=role.marks_encrypted,
            )
        case "custom_tool_call":
            call_id = delta.call_id or new_id("call_")
            return CustomCallBuilder(new_id("ctc_"), call_id, name, role.namespace)
        case "mcp_call":
            return McpCallBuilder(
                new_id("mcp_"),
                role.server_label,
                delta.name,
                shown_name=role.shown_name,
            )
        case "mcp_approval_request":
            return ApprovalRequestBuilder(new_id("mcpr_"), role.server_label, name, approval_id)
        case "code_interpreter_call":
            return CodeInterpreterCallBuilder(
                new_id("ci_"),
                name,
                role.server_label,
                shows_outputs=shows("code_interpreter_call.outputs"),
            )
        case "web_search_call":
            return WebSearchCallBuilder(
                new_id("ws_"),
                name,
                shown=shows("web_search_call.action.sources"),
            )
        case "file_search_call":
            return FileSearchCallBuilder(
                new_id("fs_"),
                name,
                shown=shows("file_search_call.results"),
            )
        case "shell_call" if role.server_label:
            call_id = delta.call_id or new_id("call_")
            item_id = new_id(items.ID_PREFIXES[items.ShellCall])
            return ShellCallBuilder(item_id, call_id, name, role.server_label)
        case "local_shell_call" | "shell_call" | "apply_patch_call" | "tool_search_call" as kind:
            call_id = delta.call_id or new_id("call_")
            item_id = new_id(id_prefix(kind))
            return ClientCallBuilder(item_id, kind, call_id, name)
        case _:
            assert_never(role.item_type)
