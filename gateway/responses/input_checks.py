"""What a request's own items must keep among each other and towards what they go on from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.errors import InvalidRequest
from gateway.wire import items

_GIVEN_ID = re.compile(r"[a-z]+_")
_MAY_REPEAT = (items.ItemReference, items.Reasoning, items.LocalShellCallOutput)
"""The id of a local shell's output is that of its call."""
_PLACE = re.compile(r"input\[(\d+)\]")


def check_ids(sent: Sequence[items.Item]) -> None:
    """Refuse an id that two items have: the model would read one thing twice.

    References may repeat; so may reasoning, of which some clients send each part as an item of its own, and ids that no
    server gave, such as the `__fake_id__` that openai-agents writes everywhere.
    """
    seen: set[str] = set()
    for index, item in enumerate(sent):
        if isinstance(item, _MAY_REPEAT) or not item.id or not _GIVEN_ID.match(item.id):
            continue
        if item.id in seen:
            raise InvalidRequest(
                f"Duplicate item found with id '{item.id}'. Remove duplicate items from your input and try again.",
                param=f"input[{index}].id",
                code="duplicate_item_id",
            )
        seen.add(item.id)


def check_outputs(own: Sequence[items.Item], history: Sequence[items.Item]) -> None:
    """Refuse the output of a call that nobody made: no prompt can say what it answers.

    Which type of call it is does not matter: Codex answers a local shell's call as a function's.
    """
    if not any(_answers(item) for item in own):
        return
    made = {name for item in history for name in _made_by(item)}
    for index, item in enumerate(own):
        made |= _made_by(item)
        if (call := _answers(item)) is not None and call not in made:
            raise InvalidRequest(
                f"No tool call found for the output with call_id '{call}'. Send the call before its output, or name the "
                "response that made it as previous_response_id.",
                param=f"input[{index}].call_id",
            )


def _made_by(item: items.Item) -> set[str]:
    """What the output of a call may name it by; empty for anything else."""
    match item:
        case items.LocalShellCall():
            return {item.call_id, item.id}
        case (
            items.FunctionCall()
            | items.CustomToolCall()
            | items.ShellCall()
            | items.ApplyPatchCall()
            | items.ToolSearchCall()
        ):
            return set() if item.call_id is None else {item.call_id}
        case _:
            return set()


def _answers(item: items.Item) -> str | None:
    """The call that an output names; None for anything else, and for a search that was not the client's."""
    match item:
        case items.LocalShellCallOutput():
            return item.call_id or item.id
        case (
            items.FunctionCallOutput()
            | items.CustomToolCallOutput()
            | items.ShellCallOutput()
            | items.ApplyPatchCallOutput()
            | items.ToolSearchOutput()
        ):
            return item.call_id
        case _:
            return None


@contextmanager
def told_by_own_place(before: int, *, brought_by: str) -> Iterator[None]:
    """Whoever reads a whole conversation names an item by its place in it; the client knows its own items only.

    `before` is how many items come before the request's own, and `brought_by` the parameter that brought them, which an
    error about one of them is told of.
    """
    try:
        yield
    except InvalidRequest as error:
        found = _PLACE.match(error.param or "")
        if found is None or error.param is None or not before:
            raise
        index = int(found[1]) - before
        rest = error.param[found.end() :]
        error.param = brought_by if index < 0 else f"input[{index}]{rest}"
        raise
