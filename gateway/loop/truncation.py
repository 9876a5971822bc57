"""`truncation: auto`: leaving out the oldest whole turns of a conversation that is too long for the model."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.wire.items import Item, Message


def turn_starts(items: Sequence[Item]) -> list[int]:
    """Where the turns of a conversation begin: at the first of the user's messages that stand together.

    What the model does in answer to them, its calls and their outputs, belongs to the turn: a call is never left without
    its output, nor an output without its call. The last turn is the present request.
    """
    starts: list[int] = []
    inside_user = False
    for index, item in enumerate(items):
        of_user = isinstance(item, Message) and item.role == "user"
        if of_user and not inside_user:
            starts.append(index)
        inside_user = of_user
    return starts


def without_oldest(items: Sequence[Item], turns: int) -> list[Item]:
    """`items` without the oldest `turns` turns; what stands before the first turn (system messages) stays."""
    starts = turn_starts(items)
    head = items[: starts[0]] if starts else items
    kept = items[starts[turns] :] if turns < len(starts) else ()
    lost = items[starts[0] : starts[turns]] if turns < len(starts) else ()
    pinned = [i for i in lost if isinstance(i, Message) and i.role in ("system", "developer")]
    return [*head, *pinned, *kept]
