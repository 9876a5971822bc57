"""`truncation: auto`: dropping the oldest parts of a conversation that exceeds the model's context."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.wire import items as wire
from gateway.wire.items import Item, Message

_ANSWERS: Final = (
    wire.FunctionCallOutput,
    wire.CustomToolCallOutput,
    wire.LocalShellCallOutput,
    wire.ShellCallOutput,
    wire.ApplyPatchCallOutput,
    wire.ToolSearchOutput,
    wire.McpCall,
    wire.WebSearchCall,
    wire.FileSearchCall,
    wire.CodeInterpreterCall,
)
"""Outputs of calls, and calls that hold their own output."""


def turn_starts(items: Sequence[Item]) -> list[int]:
    """Return the indices at which the turns of a conversation begin: the first of consecutive user messages.

    The model's answer, with its calls and their outputs, belongs to the same turn, even if there are user messages
    between them. Calls and outputs are thus never separated. The last turn is the current request.
    """
    starts: list[int] = []
    inside_user = False
    answered = _places_of_answers(items)
    reach = -1
    for index, item in enumerate(items):
        of_user = _is_of_user(item)
        if of_user and not inside_user and index > reach:
            starts.append(index)
        inside_user = of_user
        if answered and (call := _called(item)) is not None:
            reach = max(reach, answered.get(call, -1))
    return starts


def _places_of_answers(items: Sequence[Item]) -> dict[str, int]:
    """Map the id of each call to the index of its last answer."""
    places: dict[str, int] = {}
    for index, item in enumerate(items):
        if isinstance(item, wire.McpApprovalResponse):
            places[item.approval_request_id] = index
        elif isinstance(item, _ANSWERS):
            # The output of a local shell has a `call_id`, or the id of its call.
            answer = getattr(item, "call_id", None) or getattr(item, "id", None)
            if isinstance(answer, str):
                places[answer] = index
    return places


def _called(item: Item) -> str | None:
    """Return the id by which an answer refers to the call `item`; None if `item` is not a call."""
    if isinstance(item, wire.McpApprovalRequest):
        return item.id
    call_id = None if isinstance(item, _ANSWERS) else getattr(item, "call_id", None)
    return call_id if isinstance(call_id, str) else None


def droppable(items: Sequence[Item]) -> list[range]:
    """Return the parts of a conversation that can be dropped, as ranges of indices, in the order in which they are
    dropped.

    First the turns before the last one. Then, in the last turn, the leading user messages except the last of them. Then
    the model's steps (calls with their outputs), except the last step and steps that contain user messages.
    """
    starts = turn_starts(items)
    if not starts:
        return []
    end = starts[-1]
    while end < len(items) and _is_of_user(items[end]):
        end += 1
    said = [range(index, index + 1) for index in range(starts[-1], end - 1)]
    steps = (
        step for step in _steps(items, end)[:-1] if not any(_is_of_user(items[at]) for at in step)
    )
    return [*(range(*pair) for pair in pairwise(starts)), *said, *steps]


def without_oldest(items: Sequence[Item], count: int, *, preamble: int = 0) -> list[Item]:
    """Return `items` without the first `count` parts that can be dropped. System and developer messages are kept.

    The first `preamble` items come from a stored prompt. They are kept too, and are not part of any turn.
    """
    if preamble:
        return [*items[:preamble], *without_oldest(items[preamble:], count)]
    lost = {index for part in droppable(items)[:count] for index in part}
    return [item for index, item in enumerate(items) if index not in lost or _is_pinned(item)]


def _steps(items: Sequence[Item], begin: int) -> list[range]:
    """Return the ranges of the model's steps from `begin` on. A step ends when all its calls have been answered."""
    steps: list[range] = []
    waiting: set[str] = set()
    for index in range(begin, len(items)):
        item = items[index]
        if (
            not waiting
            and isinstance(items[index - 1], _ANSWERS)
            and not isinstance(item, _ANSWERS)
        ):
            steps.append(range(begin, index))
            begin = index
        call_id = getattr(item, "call_id", None)
        if isinstance(item, _ANSWERS):
            waiting.discard(call_id or "")
        elif isinstance(call_id, str):
            waiting.add(call_id)
    return [*steps, range(begin, len(items))]


def _is_of_user(item: Item) -> bool:
    return isinstance(item, Message) and item.role == "user"


def _is_pinned(item: Item) -> bool:
    return isinstance(item, Message) and item.role in ("system", "developer")


def moved_preamble(before: Sequence[Item], after: Sequence[Item], preamble: int) -> int:
    """Return the number of items at the beginning of `after` that are not part of the conversation. `after` is the
    result of applying policies to `before`, whose first `preamble` items come from a stored prompt."""
    if not preamble or len(after) == len(before):
        return preamble
    conversation = {item.id for item in before[preamble:] if item.id}
    places = (index for index, item in enumerate(after) if item.id in conversation)
    return next(places, preamble)
