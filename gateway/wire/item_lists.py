"""Lists of items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.wire.items import ID_PREFIXES, Item


def with_id(item: Item, new_id: Callable[[str], str]) -> Item:
    """`item` with its own id, or else a new one. The given item is not changed."""
    if item.id:
        return item
    return msgspec.structs.replace(item, id=new_id(ID_PREFIXES.get(type(item), "")))


def with_ids(sent: Sequence[Item], new_id: Callable[[str], str]) -> list[Item]:
    """The items of a request, each with an id. Ids sent by the client are kept."""
    return [
        item
        if item.id
        else msgspec.structs.replace(item, id=new_id(ID_PREFIXES.get(type(item), "")))
        for item in sent
    ]
