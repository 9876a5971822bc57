"""The items that a request sends, in the form in which its response and its conversation store them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gateway.base.errors import InvalidRequest
from gateway.wire import content, items
from gateway.wire.ids import new_id
from gateway.wire.item_lists import with_ids

_GIVEN_ID = re.compile(r"[a-z]+_")
_MAY_REPEAT = (items.ItemReference, items.Reasoning, items.LocalShellCallOutput)
"""The id of a local shell's output is the id of its call."""


def own_items(
    sent: Sequence[items.Item],
) -> tuple[list[items.Item], frozenset[type[items.Item]]]:
    """Return the items of a request, each with an id and without a compaction trigger; and the types of all items that
    were sent.

    Raises `InvalidRequest` for duplicate ids, because the model would read an item twice. References may repeat. The
    ids of reasoning may repeat too, because some clients send each part as a separate item, and so may ids that no
    server issued, such as the `__fake_id__` of openai-agents. Repeated ids of these two kinds are replaced by new ids.
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


_NO_ID: Final = re.compile(r"__\w*__|\.\.?|.*/.*", re.DOTALL)
"""Ids that are replaced: placeholders, such as the `__fake_id__` of openai-agents, and ids that cannot be part of a URL
path."""
_OFTEN_MISSING: Final = {
    content.OutputText: {"annotations", "logprobs"},
    items.Reasoning: {"encrypted_content"},
    items.CodeInterpreterCall: {"outputs"},
    items.FileSearchCall: {"results"},
    items.SearchAction: {"sources"},
}
"""Fields that a client may leave out when it sends an item again, or that its answer did not contain."""
_NOTHING: Final[tuple[Any, ...]] = (None, msgspec.UNSET, [], {}, "")
_ABOUT_ITEMS: Final = {"id", "status", "phase", "created_by", "agent"}
"""Fields of any item that are ignored in comparisons."""


def with_unique_ids(
    own: Sequence[items.Item], there: Iterable[items.Item] = ()
) -> list[items.Item]:
    """Return the items with unique ids: if several have the same id, the later ones get new ids.

    `there` are the items of the conversation to which they are added. An item with the id and the contents of one of
    these was sent again: it keeps its id, by which the conversation recognizes it. An item with the id but other
    contents gets a new id, because ids are unique within a conversation. References keep the id of the referenced item.
    """
    ids = {item.id for item in own}
    known = {item.id: item for item in there if item.id in ids}
    if not known and len(ids) == len(own) and not any(map(_NO_ID.fullmatch, ids)):
        return list(own)
    unique: list[items.Item] = []
    taken: set[str] = set()
    for item in own:
        if not isinstance(item, items.ItemReference):
            before = known.get(item.id)
            if (
                item.id in taken
                or (before is not None and not is_sent_again(item, before))
                or _NO_ID.fullmatch(item.id)
            ):
                item = renamed(item, new_id(items.ID_PREFIXES.get(type(item), "")))
            taken.add(item.id)
        unique.append(item)
    return unique


def is_sent_again(item: items.Item, before: items.Item) -> bool:
    """Whether `item` is `before`, sent again by a client. Both have the same id."""
    return type(item) is type(before) and _contents(item) == _contents(before)


def count_sent_again(own: Sequence[items.Item], history: Sequence[items.Item]) -> int:
    """Return the number of items at the beginning of `own` that are the last items of `history`, sent again. Takes
    linear time."""
    if not own or not history:
        return 0
    first = own[0].id
    start = next((at for at in range(len(history) - 1, -1, -1) if history[at].id == first), None)
    if start is None or len(history) - start > len(own):
        return 0
    pairs = zip(own, history[start:], strict=False)
    same = all(item.id == before.id and is_sent_again(item, before) for item, before in pairs)
    return len(history) - start if same else 0


def _contents(value: Any) -> Any:
    """Return the contents of an item in a comparable form, independent of which optional fields are given. Arbitrary
    JSON values are compared without changes."""
    if isinstance(value, msgspec.Struct):
        left_out = _ABOUT_ITEMS if isinstance(value, items.ItemBase) else ()
        missing = _OFTEN_MISSING.get(type(value), ())
        found = {
            name: _contents(getattr(value, name))
            for name in value.__struct_fields__
            if name not in left_out and name not in missing
        }
        given = {name: each for name, each in found.items() if each not in _NOTHING}
        return type(value), given
    return [_contents(each) for each in value] if isinstance(value, list) else value


def renamed(item: items.Item, new: str) -> items.Item:
    """Return the item with the id `new`."""
    if isinstance(item, items.LocalShellCallOutput) and not item.call_id:
        return msgspec.structs.replace(item, id=new, call_id=item.id)
    return msgspec.structs.replace(item, id=new)
