"""Adding items to a conversation to which other requests may add items concurrently."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from gateway.answers.responses.own_items import is_sent_again, renamed
from gateway.plugins.protocols import ConversationBounds, Conversations, ItemsPresent
from gateway.wire.ids import new_id
from gateway.wire.items import ID_PREFIXES, Item
from gateway.wire.large_bodies import threaded_if_large

_ITEM: Final = 1000
"""Number of request bytes whose processing takes about as long as a comparison of two items."""


async def add_items(
    store: Conversations,
    conversation_id: str,
    items: Sequence[Item],
    *,
    owner: str | None,
    bounds: ConversationBounds | None,
    adder: str | None = None,
) -> Sequence[Item] | None:
    """Add `items`, each with a unique id, to a conversation. Returns them as the conversation has them; None if the
    conversation does not exist.

    An item that is already in the conversation, with the same id and contents, is not added again. If the conversation
    has another item with the id, for example from a concurrent request, the item gets a new id. `adder` is the id of
    the response that adds the items. New ids are derived from it, so that another process can repeat the call with the
    same result.
    """
    named, missing = list(items), items
    while True:
        try:
            done = await store.append_items(
                conversation_id, missing, owner=owner, bounds=bounds, new=True
            )
        except ItemsPresent as present:
            page = await store.list_items(conversation_id, owner=owner)
            if page is None:
                return None
            there = {item.id: item for item in page.items}
            resolve = partial(_resolved, named, present.ids, there, adder)
            named, again = await threaded_if_large(_ITEM * len(present.ids), resolve)
            missing = [item for item in named if item.id not in again]
            if not missing:
                return named
        else:
            return named if done else None


def _resolved(
    items: Sequence[Item], present: frozenset[str], there: Mapping[str, Item], adder: str | None
) -> tuple[list[Item], set[str]]:
    """Compare `items` with the conversation's items `there`, by id. `present` are the ids that the store reported as
    taken.

    Returns the items, with new ids for those whose id belongs to another item; and the ids of those that are in the
    conversation already.
    """
    named: list[Item] = []
    again: set[str] = set()
    for item in items:
        other = there.get(item.id)
        if other is not None and is_sent_again(item, other):
            again.add(item.id)
        elif other is not None or item.id in present:
            item = renamed(item, _another_id(item, adder))
        named.append(item)
    return named, again


def _another_id(item: Item, adder: str | None) -> str:
    prefix = ID_PREFIXES.get(type(item), "")
    if adder is None:
        return new_id(prefix)
    text = f"{adder} {item.id}".encode("utf-8", "surrogatepass")
    return prefix + hashlib.sha256(text).hexdigest()[:48]
