"""An index from items to the responses that contain them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from gateway_redis import scripts
from gateway_redis.keys import Keys
from gateway_redis.server import Argument, RedisServer

_HOMES = 8
"""Maximum number of responses remembered per item. Clients that send their whole history with every request put an
item into many."""

_AT_ONCE = 1000


class ItemIndex:
    """Finds responses by the ids of their items."""

    def __init__(self, server: RedisServer, keys: Keys) -> None:
        self._server = server
        self._keys = keys

    async def put(
        self, response_id: str, item_ids: Collection[str], owner: str | None, *, live: int
    ) -> None:
        """Record that items are in a response, for at least `live` milliseconds."""
        keys = [self._keys.item(each, owner) for each in item_ids]
        arguments: list[Argument] = [response_id, live, _HOMES]
        await asyncio.gather(
            *(self._server.run(scripts.ITEMS_PUT, some, arguments) for some in self._groups(keys))
        )

    async def find(self, item_ids: Collection[str], owner: str | None) -> dict[str, list[str]]:
        """Responses that may contain each item, newest first."""
        keys = [self._keys.item(each, owner) for each in item_ids]
        answers = await asyncio.gather(
            *(self._server.run(scripts.ITEMS_FIND, some, []) for some in self._groups(keys))
        )
        homes = [[each.decode() for each in found] for answer in answers for found in answer]
        return dict(zip(item_ids, homes, strict=True))

    async def drop(self, response_id: str, item_ids: Collection[str], owner: str | None) -> None:
        """Remove a response that was deleted or whose items are no longer shown."""
        keys = [self._keys.item(each, owner) for each in item_ids]
        await asyncio.gather(
            *(
                self._server.run(scripts.ITEMS_DROP, some, [response_id])
                for some in self._groups(keys)
            )
        )

    def _groups(self, keys: Sequence[str]) -> list[Sequence[str]]:
        """Groups of keys that one script may use."""
        step = 1 if self._server.cluster else _AT_ONCE
        return [keys[start : start + step] for start in range(0, len(keys), step)]
