"""The store, composed of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

from gateway.sdk import (
    UNFINISHED,
    Append,
    CallRecord,
    CompletionPage,
    ConversationBounds,
    ItemPage,
    LimitState,
    Notification,
    Order,
    PrincipalLimits,
    SettledRequest,
    StoredCompletion,
    StoredResponse,
    UsageCount,
    UsageWidth,
)
from gateway.sdk.stores import WriteTokens
from gateway.sdk.wire import Conversation, Item, ResponseStatus
from gateway_redis.completions import CompletionTable
from gateway_redis.config import RedisConfig
from gateway_redis.conversations import ConversationTable
from gateway_redis.event_reader import EventReader
from gateway_redis.event_writer import RedisEventWriter
from gateway_redis.keys import Keys
from gateway_redis.leases import LeaseTable
from gateway_redis.ledger import Ledger
from gateway_redis.limits import LimitCounterTable
from gateway_redis.responses import ResponseRecords
from gateway_redis.server import MAX_BYTES, RedisServer
from gateway_redis.usage import UsageCounterTable
from gateway_redis.values import ValueTable


class RedisStore:
    """Implements `gateway.sdk.ResponseStore` for all gateways that use one Redis with one prefix."""

    def __init__(
        self, server: RedisServer, config: RedisConfig, *, max_bytes: int = MAX_BYTES
    ) -> None:
        """`max_bytes` is `config.max_bytes`, or its default."""
        keys, tokens = Keys(config.prefix), WriteTokens()
        self._server = server
        self._health_key = keys.health
        self._ledger = Ledger(server, keys, config, max_bytes)
        self._records = ResponseRecords(server, keys, config, tokens, self._ledger)
        self._reader = EventReader(server, keys, tokens.process)
        self._writer = RedisEventWriter(server, keys, tokens, self._reader, outage=config.outage)
        self._leases = LeaseTable(server, keys)
        self._conversations = ConversationTable(server, keys, self._ledger, ttl=config.ttl)
        self._completions = CompletionTable(server, keys, config, self._ledger)
        self._values = ValueTable(server, keys)
        self._limits = LimitCounterTable(server, keys)
        self._usage = UsageCounterTable(server, keys)

    async def close(self) -> None:
        """Finish pending writes and stop waiting. The connections are not closed: the store does not own them."""
        await self._reader.close()
        await self._writer.close()
        await self._ledger.close()

    @property
    def shared(self) -> bool:
        return True

    @property
    def lasting(self) -> bool:
        return True

    async def health(self) -> None:
        # A write that needs no memory and changes nothing: a primary that has become a replica answers PING.
        await self._server.command("DEL", self._health_key)

    async def put(self, record: StoredResponse) -> None:
        await self._records.put(record)

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        await self._writer.wait_until_written(record.id)
        return await self._records.advance(record, expected=expected, attempt=attempt)

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        return await self._records.get(response_id, owner=owner)

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        return await self._records.history(response_id, owner=owner)

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        return await self._records.find_items(item_ids, owner=owner)

    async def find_results(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, CallRecord]:
        return await self._records.find_results(item_ids, owner=owner)

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        deleted = await self._records.delete(response_id, owner=owner)
        if deleted:
            self._writer.forget(response_id)
            self._reader.end(response_id)
        return deleted

    async def append_events(
        self, response_id: str, events: Sequence[bytes], *, last: bool = False, attempt: int = 0
    ) -> bool:
        return await self._writer.append(response_id, events, last=last, attempt=attempt)

    def open_log(self, response_id: str, notify: Notification, *, attempt: int = 0) -> Append:
        return self._writer.open_log(response_id, notify, attempt=attempt)

    async def count_events(self, response_id: str) -> int:
        await self._writer.wait_until_written(response_id)
        return (await self._reader.state(response_id))[0]

    def read_events(
        self, response_id: str, *, after: int = -1
    ) -> AsyncGenerator[Sequence[bytes], None]:
        return self._reader.read(response_id, after)

    async def lease(self, holder: str, response_ids: Collection[str], *, seconds: float) -> None:
        await self._leases.lease(holder, response_ids, seconds=seconds)

    async def release(self, holder: str, response_id: str) -> None:
        await self._leases.release(holder, response_id)

    async def take_orphans(
        self, holder: str, *, seconds: float, limit: int = 100
    ) -> Sequence[StoredResponse]:
        """Includes responses that have ended but whose log has not, because their owner died in between."""
        taken = await self._leases.take(holder, seconds=seconds, limit=limit)
        found = await asyncio.gather(*(self._orphan(each) for each in taken))
        over = [each for each, orphan in zip(taken, found, strict=True) if orphan is None]
        if over:
            await self._leases.release(holder, *over)
        return [orphan for orphan in found if orphan is not None]

    async def _orphan(self, response_id: str) -> StoredResponse | None:
        record = await self._records.any(response_id)
        if record is None or record.response.status in UNFINISHED:
            return record
        _, ended = await self._reader.state(response_id)
        return record if record.streamed and not ended else None

    async def request_cancel(self, response_id: str) -> None:
        await self._leases.request_cancel(response_id)

    def cancel_requests(self) -> AsyncGenerator[str, None]:
        return self._leases.cancel_requests()

    async def put_conversation(
        self, conversation: Conversation, *, owner: str | None = None
    ) -> None:
        await self._conversations.put(conversation, owner)

    async def get_conversation(
        self, conversation_id: str, *, owner: str | None = None
    ) -> Conversation | None:
        return await self._conversations.get(conversation_id, owner)

    async def delete_conversation(self, conversation_id: str, *, owner: str | None = None) -> bool:
        return await self._conversations.delete(conversation_id, owner)

    async def append_items(
        self,
        conversation_id: str,
        items: Sequence[Item],
        *,
        owner: str | None = None,
        bounds: ConversationBounds | None = None,
        new: bool = False,
    ) -> bool:
        return await self._conversations.append(conversation_id, items, owner, bounds, all_new=new)

    async def list_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: Order = "asc",
        owner: str | None = None,
    ) -> ItemPage | None:
        return await self._conversations.page(conversation_id, after, limit, order, owner)

    async def get_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> Item | None:
        return await self._conversations.item(conversation_id, item_id, owner)

    async def delete_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> bool:
        return await self._conversations.delete_item(conversation_id, item_id, owner)

    async def put_completion(self, record: StoredCompletion) -> None:
        await self._completions.put(record)

    async def get_completion(
        self, completion_id: str, *, owner: str | None = None
    ) -> StoredCompletion | None:
        return await self._completions.get(completion_id, owner)

    async def update_completion(
        self, completion_id: str, metadata: Mapping[str, str], *, owner: str | None = None
    ) -> StoredCompletion | None:
        return await self._completions.update(completion_id, metadata, owner)

    async def delete_completion(self, completion_id: str, *, owner: str | None = None) -> bool:
        return await self._completions.delete(completion_id, owner)

    async def list_completions(
        self,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "asc",
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> CompletionPage | None:
        return await self._completions.page(
            after=after, limit=limit, order=order, model=model, metadata=metadata or {}, owner=owner
        )

    async def compare_and_set(
        self,
        name: str,
        value: bytes,
        *,
        expected: bytes | None,
        seconds: float,
        owner: str | None = None,
    ) -> bytes | None:
        return await self._values.compare_and_set(name, value, expected, seconds, owner)

    async def get_value(self, name: str, *, owner: str | None = None) -> bytes | None:
        return await self._values.get(name, owner)

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        return await self._limits.admit(principal, request_id, limits, tokens, seconds)

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        await self._limits.settle(ended)

    async def renew_requests(self, running: Sequence[tuple[str, str]], *, seconds: float) -> None:
        await self._limits.renew(running, seconds)

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        await self._usage.add(batch, counts)

    async def read_usage(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        return await self._usage.read(first, last, width)
