"""What a request's own items must keep among each other and towards what they go on from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gateway.errors import InvalidRequest
from gateway.wire import items

_OUTPUTS = items.FunctionCallOutput | items.CustomToolCallOutput
_PLACE = re.compile(r"input\[(\d+)\]")


def check_ids(sent: Sequence[items.Item]) -> None:
    """Refuse an id that two items have: the model would read one thing twice. References may repeat."""
    seen: set[str] = set()
    for index, item in enumerate(sent):
        if not item.id or isinstance(item, items.ItemReference | items.LocalShellCallOutput):
            continue  # the id of a local shell's output is that of its call
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
    if not any(isinstance(item, _OUTPUTS) for item in own):
        return
    made = {call_id for item in history if (call_id := _made_by(item)) is not None}
    for index, item in enumerate(own):
        if (call_id := _made_by(item)) is not None:
            made.add(call_id)
        elif isinstance(item, _OUTPUTS) and item.call_id not in made:
            raise InvalidRequest(
                f"No tool call found for the output with call_id '{item.call_id}'. Send the call before its output, or "
                "name the response that made it as previous_response_id.",
                param=f"input[{index}].call_id",
            )


def _made_by(item: items.Item) -> str | None:
    """The `call_id` of a call; None for anything else."""
    match item:
        case (
            items.FunctionCall()
            | items.CustomToolCall()
            | items.LocalShellCall()
            | items.ShellCall()
            | items.ApplyPatchCall()
            | items.ToolSearchCall()
            | items.ComputerCall()
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
