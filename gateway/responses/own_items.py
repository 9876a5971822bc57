"""The items that a request sends, as its response and its conversation keep them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from gateway.errors import InvalidRequest
from gateway.wire import content, items
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


_NO_ID: Final = re.compile(r"__\w*__|\.\.?|.*/.*", re.DOTALL)
"""Ids that are replaced: those that stand for none, such as the `__fake_id__` of openai-agents, and those that no path of a URL can
name."""
_OFTEN_MISSING: Final = {
    content.OutputText: {"annotations", "logprobs"},
    items.Reasoning: {"encrypted_content"},
    items.CodeInterpreterCall: {"outputs"},
    items.FileSearchCall: {"results"},
    items.SearchAction: {"sources"},
}
"""Members that a client may leave out when it sends an item again, or that it was not shown."""
_NOTHING: Final[tuple[Any, ...]] = (None, msgspec.UNSET, [], {}, "")
_ABOUT_ITEMS: Final = {"id", "status", "phase", "created_by", "agent"}
"""The same of all items."""


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
    """Whether a client has sent `before`, which has the same id, once more."""
    return type(item) is type(before) and _contents(item) == _contents(before)


def count_sent_again(own: Sequence[items.Item], history: Sequence[items.Item]) -> int:
    """The number of items at the beginning of `own` that are the last ones of `history`, sent again. Linear."""
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
    """What an item says, whichever of its optional members are given. JSON of the client's own is compared as it is."""
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
    """The item with the id `new`."""
    if isinstance(item, items.LocalShellCallOutput) and not item.call_id:
        return msgspec.structs.replace(item, id=new, call_id=item.id)
    return msgspec.structs.replace(item, id=new)
