"""Conversations in Redis. Any use of one lets it live on."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.protocols.store import ItemPage, Order
from gateway.wire.items import Item
from gateway.wire.response import Conversation
from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.packing import pack, unpack_conversation, unpack_item
from gateway_redis.server import Argument, Server


class ConversationTable:
    """The part `Conversations` of the store."""

    def __init__(self, server: Server, keys: Keys, *, ttl: float) -> None:
        self._server = server
        self._keys = keys
        self._ttl = max(1, int(ttl * 1000))

    async def put(self, conversation: Conversation, owner: str | None) -> None:
        keys = self._keys.conversation(conversation.id)
        arguments: list[Argument] = [_owner(owner), pack(conversation), self._ttl]
        await self._server.run(scripts.CONVERSATION_PUT, keys, arguments)

    async def get(self, conversation_id: str, owner: str | None) -> Conversation | None:
        found = await self._one(conversation_id, "", "get", owner)
        return None if found is None else unpack_conversation(found, of=conversation_id)

    async def delete(self, conversation_id: str, owner: str | None) -> bool:
        return await self._one(conversation_id, "", "delete", owner) is not None

    async def append(self, conversation_id: str, items: Sequence[Item], owner: str | None) -> bool:
        keys = self._keys.conversation(conversation_id)
        arguments: list[Argument] = [_owner(owner), self._ttl]
        for item in items:
            arguments += (item.id, pack(item))
        return bool(await self._server.run(scripts.CONVERSATION_APPEND, keys, arguments))

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
            [_owner(owner), self._ttl, after or "", -1 if limit is None else limit, order],
        )
        if found is None:
            return None
        items = [unpack_item(each, of=conversation_id) for each in found[1]]
        return ItemPage(items=[each for each in items if each is not None], has_more=found[0] == 1)

    async def item(self, conversation_id: str, item_id: str, owner: str | None) -> Item | None:
        found = await self._one(conversation_id, item_id, "get", owner) if item_id else None
        return None if found is None else unpack_item(found, of=conversation_id)

    async def delete_item(self, conversation_id: str, item_id: str, owner: str | None) -> bool:
        if not item_id:
            return False
        return await self._one(conversation_id, item_id, "delete", owner) is not None

    async def _one(
        self, conversation_id: str, item_id: str, verb: str, owner: str | None
    ) -> bytes | None:
        found: bytes | None = await self._server.run(
            scripts.CONVERSATION_ITEM,
            self._keys.conversation(conversation_id),
            [_owner(owner), self._ttl, item_id, verb],
        )
        return found


def _owner(owner: str | None) -> bytes:
    return b"" if owner is None else b"=" + owner.encode()
