"""Stored chat completions in Redis. Each expires `ttl` seconds after it was created."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from gateway.sdk import CompletionPage, Order, StoredCompletion
from gateway.sdk.stores import pack_json, unpack_completion, unpack_metadata
from gateway.sdk.wire import StoredChatCompletion
from gateway_redis import scripts
from gateway_redis.config import RedisConfig
from gateway_redis.keys import Keys, stored_owner
from gateway_redis.ledger import Ledger
from gateway_redis.server import RedisServer

_PASSED_AT_ONCE = 500
"""Completions whose model and metadata are examined in one round trip."""


class CompletionTable:
    """The `Completions` part of the store."""

    def __init__(
        self, server: RedisServer, keys: Keys, config: RedisConfig, ledger: Ledger
    ) -> None:
        self._server = server
        self._keys = keys
        self._ttl = max(1, int(config.ttl * 1000))
        self._ledger = ledger
        ledger.evicts("c", self._evict)

    async def put(self, record: StoredCompletion) -> None:
        completion = record.completion
        data = pack_json(record)
        before = await self._server.run(
            scripts.COMPLETION_PUT,
            [self._keys.completion(record.id)],
            [
                stored_owner(record.owner),
                completion.model,
                pack_json(completion.metadata),
                data,
                self._ttl,
            ],
        )
        if before is not None:
            await self._leave(record.id, before)
        index = self._keys.completions(stored_owner(record.owner))
        await self._server.run(scripts.COMPLETIONS_ADD, [index], [record.id, self._ttl])
        self._ledger.put("c", record.id, stored_owner(record.owner), len(data))

    async def get(self, completion_id: str, owner: str | None) -> StoredCompletion | None:
        found = await self._server.run(
            scripts.OWNED, [self._keys.completion(completion_id)], [stored_owner(owner), "k", "d"]
        )
        if found is None:
            return None
        metadata, data = found
        return _record(completion_id, data, metadata)

    async def update(
        self, completion_id: str, metadata: Mapping[str, str], owner: str | None
    ) -> StoredCompletion | None:
        packed = pack_json(metadata)
        data = await self._server.run(
            scripts.COMPLETION_UPDATE,
            [self._keys.completion(completion_id)],
            [stored_owner(owner), packed],
        )
        return _record(completion_id, data, packed)

    async def delete(self, completion_id: str, owner: str | None) -> bool:
        deleted = await self._delete(completion_id, stored_owner(owner))
        if deleted:
            self._ledger.drop("c", completion_id)
        return deleted

    async def page(
        self,
        *,
        after: str | None,
        limit: int,
        order: Order,
        model: str | None,
        metadata: Mapping[str, str],
        owner: str | None,
    ) -> CompletionPage | None:
        index = self._keys.completions(stored_owner(owner))
        filters = model is not None or bool(metadata)
        size = _PASSED_AT_ONCE if filters else limit + 1
        found: list[StoredChatCompletion] = []
        one, time = after or "", b""
        while len(found) <= limit:
            passed = await self._server.run(
                scripts.COMPLETIONS_PAGE, [index], [one, time, order, size]
            )
            if passed is None:
                return None
            one, time = "", passed[0]
            ids = [each.decode() for each in passed[1]]
            fitting = await self._fitting(ids, model, metadata) if filters else ids
            found += await self._completions(fitting[: limit + 1 - len(found)])
            if len(ids) < size:
                break
        return CompletionPage(completions=found[:limit], has_more=len(found) > limit)

    async def _fitting(
        self, ids: Sequence[str], model: str | None, metadata: Mapping[str, str]
    ) -> list[str]:
        """The ids of completions that match the model and the metadata."""
        fitting: list[str] = []
        for each, (name, packed) in zip(ids, await self._read(ids, "n", "k"), strict=True):
            if packed is None or (model is not None and name != model.encode()):
                continue
            known = unpack_metadata(packed, of=each)
            if known is not None and metadata.items() <= known.items():
                fitting.append(each)
        return fitting

    async def _completions(self, ids: Sequence[str]) -> list[StoredChatCompletion]:
        found = await self._read(ids, "d", "k")
        records = [
            _record(each, data, metadata) for each, (data, metadata) in zip(ids, found, strict=True)
        ]
        return [record.completion for record in records if record is not None]

    async def _read(self, ids: Sequence[str], *fields: str) -> Sequence[Sequence[bytes | None]]:
        if not ids:
            return []
        keys = [self._keys.completion(each) for each in ids]
        if self._server.cluster:
            return list(
                await asyncio.gather(*(self._server.command("HMGET", key, *fields) for key in keys))
            )
        found: Sequence[Sequence[bytes | None]] = await self._server.run(
            scripts.FIELDS, keys, fields
        )
        return found

    async def _evict(self, completion_id: str, owner: bytes) -> None:
        await self._delete(completion_id, owner)

    async def _delete(self, completion_id: str, owner: bytes) -> bool:
        gone = await self._server.run(
            scripts.COMPLETION_DELETE, [self._keys.completion(completion_id)], [owner]
        )
        if gone is None:
            return False
        await self._leave(completion_id, gone)
        return True

    async def _leave(self, completion_id: str, owner: bytes) -> None:
        await self._server.command("ZREM", self._keys.completions(owner), completion_id)


def _record(
    completion_id: str, data: bytes | None, metadata: bytes | None
) -> StoredCompletion | None:
    """The stored completion with its current metadata."""
    if data is None or metadata is None:
        return None
    record = unpack_completion(data, of=completion_id)
    now = unpack_metadata(metadata, of=completion_id)
    if record is None or now is None:
        return None
    completion = msgspec.structs.replace(record.completion, metadata=now)
    return msgspec.structs.replace(record, completion=completion)
