"""Conversations and their items."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.sdk import ConversationBounds, ConversationFull, ItemPage, Order
from gateway.sdk.stores import (
    Cut,
    cut,
    named_parts,
    pack,
    unpack_conversation,
    unpack_item,
    whole_size,
)
from gateway.sdk.wire import Conversation, Item
from gateway_sql import parts
from gateway_sql.schema import OF_CONVERSATION
from gateway_sql.statements import Operation, Statement, key, owner_key


def put(
    conversation_id: str, packed: bytes, owner: str | None, now: float, ttl: float
) -> Operation[None]:
    """Store a conversation. If there is an expired one with the same id, or one of another owner, removes it and its
    items."""
    name = key(conversation_id)
    rows = yield Statement(
        "SELECT num, owner, used FROM conversations WHERE id = $1 FOR UPDATE", (name,)
    )
    if rows and (rows[0][1] != owner_key(owner) or rows[0][2] <= now - ttl):
        yield from _remove(rows[0][0])
    yield Statement(
        "INSERT INTO conversations (id, owner, data, number, bytes, next, size, used) "
        "VALUES ($1, $2, $3, 0, 0, 0, $4, $5) ON CONFLICT (id) DO UPDATE "
        "SET data = excluded.data, size = conversations.size - length(conversations.data) + excluded.size, "
        "used = excluded.used",
        (name, owner_key(owner), packed, len(packed), now),
    )


def get(
    conversation_id: str, owner: str | None, since: float
) -> Operation[tuple[Conversation | None, int, float] | None]:
    """A conversation with its row and the time of its last use."""
    rows = yield Statement(
        "SELECT data, num, used FROM conversations WHERE id = $1 AND owner = $2 AND used > $3",
        (key(conversation_id), owner_key(owner), since),
    )
    if not rows:
        return None
    return unpack_conversation(rows[0][0], of=conversation_id), rows[0][1], rows[0][2]


def delete(conversation_id: str, owner: str | None, since: float) -> Operation[bool]:
    rows = yield Statement(
        "SELECT num FROM conversations WHERE id = $1 AND owner = $2 AND used > $3 FOR UPDATE",
        (key(conversation_id), owner_key(owner), since),
    )
    if not rows:
        return False
    yield from _remove(rows[0][0])
    return True


def evict(num: int) -> Operation[None]:
    """Remove a conversation."""
    rows = yield Statement("SELECT num FROM conversations WHERE num = $1 FOR UPDATE", (num,))
    if rows:
        yield from _remove(num)


def _remove(num: int) -> Operation[None]:
    yield Statement("DELETE FROM conversation_items WHERE conversation = $1", (num,))
    gone = yield Statement("DELETE FROM conversations WHERE num = $1 RETURNING parts", (num,))
    if gone and gone[0][0]:
        yield from parts.leave(OF_CONVERSATION, [num])


def packed_items(items: Mapping[str, Item]) -> dict[str, Cut]:
    """Items by key, in the same order."""
    return {key(item_id): cut(pack(item)) for item_id, item in items.items()}


def append(
    conversation_id: str,
    items: Mapping[str, Cut],
    owner: str | None,
    bounds: ConversationBounds | None,
    now: float,
    ttl: float,
    *,
    all_new: bool,
) -> Operation[bool | Collection[str] | ConversationFull]:
    """Append items, by key. Items that the conversation already contains are left out. Returns True, or False if there
    is no such conversation.

    If `all_new` is set and some items are already there, appends nothing, and returns their keys. If the conversation
    would exceed `bounds`, appends nothing, and returns the error: if it were raised, the other operations of the
    transaction would be run again.
    """
    rows = yield Statement(
        "SELECT num, number, bytes, next FROM conversations WHERE id = $1 AND owner = $2 AND used > $3 FOR UPDATE",
        (key(conversation_id), owner_key(owner), now - ttl),
    )
    if not rows:
        return False
    num, number, size, position = rows[0]
    there = yield Statement(
        "SELECT item FROM conversation_items WHERE conversation = $1 AND item = ANY($2::text[])",
        (num, list(items)),
    )
    known = {item for (item,) in there}
    if known and all_new:
        return known
    new = {item: packed for item, packed in items.items() if item not in known}
    # The bounds of a conversation apply to its size when it is read. The bounds of the store apply
    # to the stored bytes.
    added = sum(whole_size(*packed) for packed in new.values())
    stored = sum(len(packed.data) for packed in new.values())
    uses = sum(len(packed.parts) for packed in new.values())
    if (
        bounds is not None
        and new
        and (number + len(new) > bounds.items or size + added > bounds.bytes)
    ):
        return ConversationFull.beyond(bounds.items, bounds.bytes)
    if new:
        yield Statement(
            "INSERT INTO conversation_items (conversation, position, item, data) VALUES ($1, $2, $3, $4)",
            [
                (num, position + at, item, packed.data)
                for at, (item, packed) in enumerate(new.items())
            ],
            each=True,
        )
    if uses:
        held = {name: packed.parts for name, packed in new.items()}
        yield from parts.hold(owner_key(owner), OF_CONVERSATION, num, held)
    yield Statement(
        "UPDATE conversations SET number = number + $2, bytes = bytes + $3, size = size + $5, next = next + $2, "
        "used = $4, parts = parts + $6 WHERE num = $1",
        (num, len(new), added, now, stored, uses),
    )
    return True


def page(
    conversation_id: str,
    after: str | None,
    limit: int | None,
    order: Order,
    owner: str | None,
    since: float,
) -> Operation[tuple[ItemPage, int, float] | None]:
    """A page of items, with the conversation's row and the time of its last use. None if there is no such conversation,
    or no item `after` in it."""
    rows = yield Statement(
        "SELECT num, used FROM conversations WHERE id = $1 AND owner = $2 AND used > $3",
        (key(conversation_id), owner_key(owner), since),
    )
    if not rows:
        return None
    num, used = rows[0]
    beyond = -1 if order == "asc" else 1 << 60
    if after is not None:
        found = yield Statement(
            "SELECT position FROM conversation_items WHERE conversation = $1 AND item = $2",
            (num, key(after)),
        )
        if not found:
            return None
        beyond = found[0][0]
    comparison, direction = (">", "ASC") if order == "asc" else ("<", "DESC")
    items = yield Statement(
        f"SELECT data FROM conversation_items WHERE conversation = $1 AND position {comparison} $2 "
        f"ORDER BY position {direction} LIMIT $3",
        (num, beyond, 1 << 60 if limit is None else limit + 1),
    )
    has_more = limit is not None and len(items) > limit
    data = [each for (each,) in (items[:limit] if has_more else items)]
    whole = yield from parts.restored(owner_key(owner), data)
    read = [unpack_item(each or b"", of=conversation_id) for each in whole]
    return (
        ItemPage(items=[each for each in read if each is not None], has_more=has_more),
        num,
        used,
    )


def item(
    conversation_id: str, item_id: str, owner: str | None, since: float
) -> Operation[tuple[Item | None, int, float] | None]:
    """An item, with the conversation's row and the time of its last use."""
    rows = yield Statement(
        "SELECT i.data, c.num, c.used FROM conversations c JOIN conversation_items i ON i.conversation = c.num "
        "WHERE c.id = $1 AND c.owner = $2 AND c.used > $3 AND i.item = $4",
        (key(conversation_id), owner_key(owner), since, key(item_id)),
    )
    if not rows:
        return None
    [data] = yield from parts.restored(owner_key(owner), [rows[0][0]])
    return unpack_item(data or b"", of=conversation_id), rows[0][1], rows[0][2]


def delete_item(
    conversation_id: str, item_id: str, owner: str | None, now: float, ttl: float
) -> Operation[bool]:
    rows = yield Statement(
        "SELECT num FROM conversations WHERE id = $1 AND owner = $2 AND used > $3 FOR UPDATE",
        (key(conversation_id), owner_key(owner), now - ttl),
    )
    if not rows:
        return False
    num = rows[0][0]
    gone = yield Statement(
        "DELETE FROM conversation_items WHERE conversation = $1 AND item = $2 RETURNING data",
        (num, key(item_id)),
    )
    if not gone:
        return False
    [data] = yield from parts.restored(owner_key(owner), [gone[0][0]])
    uses = len(named_parts(gone[0][0]))
    if uses:
        yield from parts.leave(OF_CONVERSATION, [num], item=key(item_id))
    yield Statement(
        "UPDATE conversations SET number = number - 1, bytes = bytes - $2, size = size - $4, used = $3, parts = parts - $5 "
        "WHERE num = $1",
        (num, len(data or b""), now, len(gone[0][0]), uses),
    )
    return True


def touch(num: int, now: float) -> Operation[None]:
    """Mark a conversation as used now."""
    yield Statement("UPDATE conversations SET used = $2 WHERE num = $1 AND used < $2", (num, now))
