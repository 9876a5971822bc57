"""The items that a request sends, as its response keeps them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.errors import InvalidRequest
from gateway.wire import items
from gateway.wire.ids import new_id
from gateway.wire.item_lists import with_ids

_GIVEN_ID = re.compile(r"[a-z]+_")
_MAY_REPEAT = (items.ItemReference, items.Reasoning, items.LocalShellCallOutput)
"""The id of a local shell's output is the id of its call."""


def own_items(
    sent: Sequence[items.Item],
) -> tuple[list[items.Item], frozenset[type[items.Item]]]:
    """The items of a request, each with an id, and without a compaction trigger; and the types of all that were sent.

    Raises for duplicate ids, since the model would read an item twice. References may repeat. So may reasoning, because some
    clients send each part as a separate item, and ids that no server issued, such as the `__fake_id__` of openai-agents.
    """
    own = with_ids(sent, new_id)
    seen: set[str] = set()
    for index, item in enumerate(sent):
        if not item.id or isinstance(item, _MAY_REPEAT) or not _GIVEN_ID.match(item.id):
            continue
        if item.id in seen:
            raise InvalidRequest(
                f"Duplicate item found with id '{item.id}'. Remove duplicate items from your input and try again.",
                param=("input", index, "id"),
                code="duplicate_item_id",
            )
        seen.add(item.id)
    kinds = frozenset(map(type, sent))
    if items.CompactionTrigger in kinds:
        own = [item for item in own if not isinstance(item, items.CompactionTrigger)]
    return own, kinds
