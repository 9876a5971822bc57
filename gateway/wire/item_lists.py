"""Lists of items: which types are in them, and giving each an id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from gateway.wire.items import ID_PREFIXES, Item, Message


def has_any(context: Iterable[Item], kinds: Collection[type[Item]]) -> bool:
    """Whether any of the items is of one of these types. Costs a fraction of a loop over a conversation, in which most items
    are messages."""
    return not set(map(type, context)).isdisjoint(kinds)


def only_messages(context: Iterable[Item]) -> bool:
    """Whether all of the items are messages, as in most conversations."""
    return set(map(type, context)) <= {Message}


def with_id(item: Item, new_id: Callable[[str], str]) -> Item:
    """`item` with its own id, or else a new one. The given item is not changed."""
    if item.id:
        return item
    return msgspec.structs.replace(item, id=new_id(ID_PREFIXES.get(type(item), "")))


def with_ids(sent: Sequence[Item], new_id: Callable[[str], str]) -> list[Item]:
    """The items of a request, each with an id. Ids sent by the client are kept."""
    return [item if item.id else with_id(item, new_id) for item in sent]
