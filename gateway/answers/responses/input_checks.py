"""Checks that a request's items are consistent with each other and with the history."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.errors import InvalidRequest
from gateway.wire import items


def check_outputs(own: Sequence[items.Item], history: Sequence[items.Item]) -> None:
    """Raise `InvalidRequest` for the output of an unknown call, which cannot be rendered.

    The types of call and output need not match: Codex answers a local shell call with a function call output.
    """
    if not any(_answers(item) for item in own):
        return
    made = {name for item in history for name in _made_by(item)}
    for index, item in enumerate(own):
        made |= _made_by(item)
        if (call := _answers(item)) is not None and call not in made:
            raise InvalidRequest(
                f"No tool call found for the output with call_id '{call[:100]}'. Send the call before its output, or name the "
                "response that made it as previous_response_id.",
                param=("input", index, _names_its_call(item)),
            )


def _names_its_call(item: items.Item) -> str:
    """Return the field of an output that names its call."""
    if isinstance(item, items.LocalShellCallOutput) and not item.call_id:
        return "id"
    return "call_id"


def check_pairs(own: Sequence[items.Item], whole: Sequence[items.Item]) -> None:
    """Raise `InvalidRequest`, as OpenAI does, for an output without its call, or a call of a client's tool without its
    output. `own` are the request's items, `whole` is the conversation."""
    made = {name for item in whole for name in _made_by(item)}
    answered = {call for item in whole if (call := _answers(item)) is not None}
    for item in own:
        if (call := _answers(item)) is not None and call not in made:
            raise InvalidRequest(
                f"No tool call found for function call output with call_id {call[:100]}.",
                param="input",
            )
    for item in whole:
        ids = _made_by(item)
        if ids and not ids & answered and _is_clients(item):
            raise InvalidRequest(
                f"No tool output found for function call {min(ids)[:100]}.", param="input"
            )


def _is_clients(item: items.Item) -> bool:
    """Whether the client answers the call. The gateway runs some searches and shell calls itself."""
    return isinstance(
        item,
        items.FunctionCall | items.CustomToolCall | items.LocalShellCall | items.ApplyPatchCall,
    )


def _made_by(item: items.Item) -> set[str]:
    """Return the ids by which an output can refer to this call. Empty for other items."""
    match item:
        case items.LocalShellCall():
            return {item.call_id, item.id}
        case (
            items.FunctionCall()
            | items.CustomToolCall()
            | items.ShellCall()
            | items.ApplyPatchCall()
            | items.ToolSearchCall()
            | items.MultiAgentCall()
            | items.ComputerCall()
            | items.Program()
        ):
            return set() if item.call_id is None else {item.call_id}
        case _:
            return set()


def _answers(item: items.Item) -> str | None:
    """Return the call id that an output refers to. None for other items, and for searches that the client did not
    run."""
    if isinstance(item, items.Message):
        return None  # the common case
    match item:
        case items.LocalShellCallOutput():
            return item.call_id or item.id
        case (
            items.FunctionCallOutput()
            | items.CustomToolCallOutput()
            | items.ShellCallOutput()
            | items.ApplyPatchCallOutput()
            | items.ToolSearchOutput()
            | items.MultiAgentCallOutput()
            | items.ComputerCallOutput()
            | items.ProgramOutput()
        ):
            return item.call_id
        case _:
            return None
