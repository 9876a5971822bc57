"""The calls from earlier responses that a request approves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire import items


class ApprovedCall(Struct, frozen=True):
    """A call from an earlier response that this request approves."""

    request_id: str
    name: str
    """The name that the model sees."""
    arguments: str


def approved_calls(
    own: Sequence[items.Item],
    history: Sequence[items.Item],
    told_names: Mapping[tuple[str, str], str],
    check: Callable[[items.McpApprovalRequest, ParamPath], None],
) -> list[ApprovedCall]:
    """The calls that the items `own` approve and that have not run yet, according to the conversation.

    `told_names` maps the tools of this request, by server label and name, to the names that the model sees. Raises
    `InvalidRequest` for an approval without an approval request, and for a tool that this request does not offer.
    `check` is called with each approval request and the parameter that approves it; it raises if this server did not
    create the approval request.
    """
    answers = {
        index: item for index, item in enumerate(own) if isinstance(item, items.McpApprovalResponse)
    }
    context = [*history, *own]
    # A stored request takes precedence over a copy sent by the client. Neither may be forged.
    asked: dict[str, list[items.McpApprovalRequest]] = {}
    for item in context:
        if isinstance(item, items.McpApprovalRequest):
            asked.setdefault(item.id, []).append(item)
    settled = {item.approval_request_id for item in context if isinstance(item, items.McpCall)}
    settled |= {item.approval_request_id for item in answers.values() if not item.approve}
    approved: list[ApprovedCall] = []
    for index, answer in answers.items():
        param = ("input", index, "approval_request_id")
        requests = asked.get(answer.approval_request_id)
        if requests is None:
            raise InvalidRequest(
                f"No approval request has the id '{answer.approval_request_id[:100]}' in this conversation. Send the "
                "mcp_approval_request with it, or name the response that holds it as previous_response_id.",
                param=param,
                code="approval_request_not_found",
            )
        request = requests[0]
        if request.id in settled:
            continue
        settled.add(request.id)
        for each in requests:
            check(each, param)
        name = told_names.get((request.server_label, request.name))
        if name is None:
            raise InvalidRequest(
                f"The approved tool '{request.name}' of the server '{request.server_label}' is not among the tools of "
                "this request. Send the same tools as in the request that asked.",
                param=param,
                code="approved_tool_not_offered",
            )
        approved.append(ApprovedCall(request.id, name, request.arguments))
    return approved
