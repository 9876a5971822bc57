"""`truncation: auto`: dropping the oldest whole turns of a conversation that exceeds the model's context."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.wire.items import Item, Message


def turn_starts(items: Sequence[Item]) -> list[int]:
    """The indices at which the turns of a conversation begin: the first of each run of consecutive user messages.

    The model's answer, with its calls and their outputs, belongs to the same turn, so calls and outputs are never
    separated. The last turn is the current request.
    """
    starts: list[int] = []
    inside_user = False
    for index, item in enumerate(items):
        of_user = isinstance(item, Message) and item.role == "user"
        if of_user and not inside_user:
            starts.append(index)
        inside_user = of_user
    return starts


def without_oldest(items: Sequence[Item], turns: int, *, preamble: int = 0) -> list[Item]:
    """`items` without the oldest `turns` turns. Items before the first turn (system messages) are kept.

    The first `preamble` items, those of a stored prompt, are kept too, and are not part of any turn.
    """
    if preamble:
        return [*items[:preamble], *without_oldest(items[preamble:], turns)]
    starts = turn_starts(items)
    head = items[: starts[0]] if starts else items
    kept = items[starts[turns] :] if turns < len(starts) else ()
    lost = items[starts[0] : starts[turns]] if turns < len(starts) else ()
    pinned = [i for i in lost if isinstance(i, Message) and i.role in ("system", "developer")]
    return [*head, *pinned, *kept]


def moved_preamble(before: Sequence[Item], after: Sequence[Item], preamble: int) -> int:
    """How many items at the beginning of `after` are not of the conversation. `after` is what policies have made of `before`,
    whose first `preamble` items are those of a stored prompt."""
    if not preamble or len(after) == len(before):
        return preamble
    conversation = {item.id for item in before[preamble:] if item.id}
    places = (index for index, item in enumerate(after) if item.id in conversation)
    return next(places, preamble)
