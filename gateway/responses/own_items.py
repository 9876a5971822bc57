"""The items that a request sends, as its response and its conversation keep them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

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
    clients send each part as a separate item, and ids that no server issued, such as the `__fake_id__` of openai-agents: each
    repeated one is replaced by a new id.
    """
    own = with_unique_ids(with_ids(sent, new_id))
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


_PLACEHOLDER: Final = re.compile(r"__\w*__")
"""Ids that stand for none, such as the `__fake_id__` of openai-agents."""
_NOT_COMPARED: Final = frozenset(
    ("id", "status", "phase", "annotations", "logprobs", "encrypted_content", "created_by", "agent")
)
"""Members of an item that a client may leave out when it sends the item again."""


def with_unique_ids(
    own: Sequence[items.Item], there: Iterable[items.Item] = ()
) -> list[items.Item]:
    """The items, each with an id of its own: where several have one id, the later ones get a new id.

    `there` are the items of the conversation that they are added to. An item with the id and the contents of one of these is
    that item, sent again: it keeps its id, by which the conversation recognizes it. With other contents it is another item and
    gets a new id, because a conversation has each id once. References keep the id of what they refer to.
    """
    ids = {item.id for item in own}
    known = {item.id: item for item in there if item.id in ids}
    if not known and len(ids) == len(own):
        return list(own)
    unique: list[items.Item] = []
    taken: set[str] = set()
    for item in own:
        if not isinstance(item, items.ItemReference):
            before = known.get(item.id)
            if item.id in taken or (before is not None and not _is_sent_again(item, before)):
                item = _renamed(item)
            taken.add(item.id)
        unique.append(item)
    return unique


def _is_sent_again(item: items.Item, before: items.Item) -> bool:
    """Whether a client has sent `before` once more."""
    if _PLACEHOLDER.fullmatch(item.id):
        return False
    return type(item) is type(before) and _contents(item) == _contents(before)


def _contents(value: Any) -> Any:
    """What an item says, whichever of its optional members are given."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        found = {name: _contents(each) for name, each in value.items() if name not in _NOT_COMPARED}
        return {name: each for name, each in found.items() if each not in (None, [], {}, "")}
    return [_contents(each) for each in value] if isinstance(value, list) else value


def _renamed(item: items.Item) -> items.Item:
    """The item with a new id."""
    fresh = new_id(items.ID_PREFIXES.get(type(item), ""))
    if isinstance(item, items.LocalShellCallOutput) and not item.call_id:
        return msgspec.structs.replace(item, id=fresh, call_id=item.id)
    return msgspec.structs.replace(item, id=fresh)
