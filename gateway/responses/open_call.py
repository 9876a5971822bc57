"""The item that a call begins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias, assert_never

from gateway.deltas import CallStarted
from gateway.responses.open_item import (
    OpenApprovalRequest,
    OpenClientCall,
    OpenCodeInterpreterCall,
    OpenCustomCall,
    OpenFileSearchCall,
    OpenFunctionCall,
    OpenMcpCall,
    OpenServerCall,
    OpenShellCall,
    OpenWebSearchCall,
)
from gateway.responses.roles import FUNCTION, CallRole
from gateway.tools.client_run import id_prefix
from gateway.wire import items

OpenCall: TypeAlias = (
    OpenFunctionCall | OpenCustomCall | OpenApprovalRequest | OpenClientCall | OpenServerCall
)


def open_call(
    delta: CallStarted,
    roles: Mapping[str, CallRole],
    index: int,
    take: Callable[[], int],
    new_id: Callable[[str], str],
    include: Collection[str] | None,
) -> OpenCall:
    """The item at `index` of the output, of the type that the called tool's role says; `take` gives sequence numbers.

    For `new_id` and `include` see `ResponseAssembler`.
    """

    def shows(part: str) -> bool:
        return include is None or part in include

    role = roles.get(delta.name, FUNCTION)
    name = role.shown_name or delta.name
    match role.item_type:
        case "function_call":
            call_id = delta.call_id or new_id("call_")
            return OpenFunctionCall(new_id("fc_"), index, take, call_id, name, role.namespace)
        case "custom_tool_call":
            call_id = delta.call_id or new_id("call_")
            return OpenCustomCall(new_id("ctc_"), index, take, call_id, name, role.namespace)
        case "mcp_call":
            return OpenMcpCall(
                new_id("mcp_"),
                index,
                take,
                role.server_label,
                delta.name,
                shown_name=role.shown_name,
            )
        case "mcp_approval_request":
            return OpenApprovalRequest(new_id("mcpr_"), index, take, role.server_label, name)
        case "code_interpreter_call":
            return OpenCodeInterpreterCall(
                new_id("ci_"),
                index,
                take,
                name,
                role.server_label,
                shows_outputs=shows("code_interpreter_call.outputs"),
            )
        case "web_search_call":
            return OpenWebSearchCall(
                new_id("ws_"),
                index,
                take,
                name,
                shown=shows("web_search_call.action.sources"),
            )
        case "file_search_call":
            return OpenFileSearchCall(
                new_id("fs_"),
                index,
                take,
                name,
                shown=shows("file_search_call.results"),
            )
        case "shell_call" if role.server_label:
            call_id = delta.call_id or new_id("call_")
            item_id = new_id(items.ID_PREFIXES[items.ShellCall])
            return OpenShellCall(item_id, index, take, call_id, name, role.server_label)
        case "local_shell_call" | "shell_call" | "apply_patch_call" | "tool_search_call" as kind:
            call_id = delta.call_id or new_id("call_")
            item_id = new_id(id_prefix(kind))
            return OpenClientCall(item_id, index, take, kind, call_id, name)
        case _:
            assert_never(role.item_type)
