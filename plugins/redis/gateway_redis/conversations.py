"""Conversations in Redis. Any use of a conversation extends its lifetime."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import ConversationBounds, ConversationFull, ItemPage, ItemsPresent, Order
from gateway.sdk.stores import pack, unpack_conversation, unpack_item
from gateway.sdk.wire import Conversation, Item
from gateway_redis import scripts
from gateway_redis.keys import Keys, stored_owner
from gateway_redis.ledger import Ledger
from gateway_redis.server import Argument, RedisServer


class ConversationTable:
    """The `Conversations` part of the store."""

    def __init__(self, server: RedisServer, keys: Keys, ledger: Ledger, *, ttl: float) -> None:
        self._server = server
        self._keys = keys
        self._ledger = ledger
        ledger.evicts("v", self._evict)
        self._ttl = max(1, int(ttl * 1000))

    async def put(self, conversation: Conversation, owner: str | None) -> None:
        keys = self._keys.conversation(conversation.id)
        packed = pack(conversation)
        arguments: list[Argument] = [stored_owner(owner), packed, self._ttl]
        size = await self._server.run(scripts.CONVERSATION_PUT, keys, arguments)
        self._ledger.put("v", conversation.id, stored_owner(owner), size + len(packed))

    async def get(self, conversation_id: str, owner: str | None) -> Conversation | None:
        found = await self._one(conversation_id, "", "get", stored_owner(owner))
        return None if found is None else unpack_conversation(found, of=conversation_id)

    async def delete(self, conversation_id: str, owner: str | None) -> bool:
        deleted = await self._one(conversation_id, "", "delete", stored_owner(owner)) is not None
        if deleted:
            self._ledger.drop("v", conversation_id)
        return deleted

    async def _evict(self, conversation_id: str, owner: bytes) -> None:
        await self._one(conversation_id, "", "delete", owner)

    async def append(
        self,
        conversation_id: str,
        items: Sequence[Item],
        owner: str | None,
        bounds: ConversationBounds | None,
        *,
        all_new: bool,
    ) -> bool:
        keys = self._keys.conversation(conversation_id)
        most = (-1, -1) if bounds is None else (bounds.items, bounds.bytes)
        arguments: list[Argument] = [stored_owner(owner), self._ttl, *most, int(all_new)]
        for item in items:
            arguments += (item.id, pack(item))
        done = await self._server.run(scripts.CONVERSATION_APPEND, keys, arguments)
        if isinstance(done, list):
            raise ItemsPresent([each.decode() for each in done])
        if done == -1:
            raise ConversationFull.beyond(*most)
        if done:
            self._ledger.put("v", conversation_id, stored_owner(owner), done)
        return bool(done)

    async def page(
        self,
        conversation_id: str,
        after: str | None,
        limit: int | None,
        order: Order,
        owner: str | None,
    ) -> ItemPage | None:
        found = await self._server.run(
            scripts.CONVERSATION_PAGE,
            self._keys.conversation(conversation_id),
            [stored_owner(owner), self._ttl, after or "", -1 if limit is None else limit, order],
        )
        if found is None:
            return None
        items = [unpack_item(each, of=conversation_id) for each in found[1]]
        return ItemPage(items=[each for each in items if each is not None], has_more=found[0] == 1)

    async def item(self, conversation_id: str, item_id: str, owner: str | None) -> Item | None:
        found = (
            await self._one(conversation_id, item_id, "get", stored_owner(owner))
            if item_id
            else None
        )
        return None if found is None else unpack_item(found, of=conversation_id)

    async def delete_item(self, conversation_id: str, item_id: str, owner: str | None) -> bool:
        if not item_id:
            return False
        return await self._one(conversation_id, item_id, "delete", stored_owner(owner)) is not None

    async def _one(
        self, conversation_id: str, item_id: str, verb: str, owner: bytes
    ) -> bytes | None:
        found: bytes | None = await self._server.run(
            scripts.CONVERSATION_ITEM,
            self._keys.conversation(conversation_id),
            [owner, self._ttl, item_id, verb],
        )
        return found
