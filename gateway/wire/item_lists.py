"""Lists of items."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.wire.items import ID_PREFIXES, Item


def with_ids(sent: Sequence[Item], new_id: Callable[[str], str]) -> list[Item]:
    """The items of a request, each with an id. Ids sent by the client are kept, and the given items are not changed."""
    return [
        item
        if item.id
        else msgspec.structs.replace(item, id=new_id(ID_PREFIXES.get(type(item), "")))
        for item in sent
    ]
