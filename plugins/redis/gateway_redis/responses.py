"""Responses and their histories in Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gateway.sdk import UNFINISHED, CallRecord, StoredResponse
from gateway.sdk.stores import pack, unpack_items, unpack_record, unpack_results
from gateway.sdk.wire import Item, ResponseStatus
from gateway_redis import scripts
from gateway_redis.config import RedisConfig
from gateway_redis.items import ItemIndex
from gateway_redis.keys import Keys
from gateway_redis.ledger import Ledger
from gateway_redis.packing import pack_ids, unpack_ids
from gateway_redis.server import Argument, RedisServer, through_outage
from gateway_redis.tokens import CallTokens

logger = logging.getLogger("gateway_redis")

_AT_ONCE = 1000
"""Maximum number of responses whose keys are passed to one script."""

_LONGEST_RUN = 3600
"""Seconds for which the ancestors of a running response are kept beyond their own lifetime."""

_REMEMBERED = 10_000
"""Number of responses whose expiry a process remembers."""

_BROKEN = b"1"

_RECORD = ("m", "i", "u", "r")
"""The fields of a record that contain the response."""


class ResponseRecords:
    """The `Responses` part of the store."""

    def __init__(
        self,
        server: RedisServer,
        keys: Keys,
        config: RedisConfig,
        tokens: CallTokens,
        ledger: Ledger,
    ) -> None:
        self._server = server
        self._keys = keys
        self._tokens = tokens
        self._outage = config.outage
        self._ttl = max(1, int(config.ttl * 1000))
        self._homes = ItemIndex(server, keys)
        self._lives: dict[str, float] = {}
        """Earliest expiry of each response (`time.monotonic`, ms), as far as this process has set it."""
        self._ledger = ledger
        ledger.evicts("r", self._evict)

    async def put(self, record: StoredResponse) -> None:
        unfinished = record.response.status in UNFINISHED
        parent, ancestors, broken = await self._chain(record, unfinished)
        written = self._written(record, "", attempt=record.attempt)
        arguments: list[Argument] = [*written, parent, pack_ids(ancestors), broken]
        keys = self._keys.response(record.id)
        (left, _), _, _ = await asyncio.gather(
            self._server.run(scripts.PUT, keys, arguments),
            self._touch(ancestors, unfinished),
            self._note_items(record),
        )
        if left:
            await self._remove_items_of(left.decode(), record.id)
        if not unfinished:
            self._note(record, arguments)

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        """Tolerates a short outage of Redis: the repeated call detects that it was already applied."""
        if not expected:
            return False
        keys = self._keys.response(record.id)
        arguments = self._written(
            record,
            f",{','.join(expected)},",
            attempt=record.attempt if attempt is None else attempt,
        )
        over = record.response.status not in UNFINISHED

        async def write() -> bool:
            done = await self._server.run(scripts.PUT, keys, arguments)
            if done is not None and over:
                await asyncio.gather(
                    self._touch(unpack_ids(done[1]), False), self._note_items(record)
                )
            return done is not None

        done = await through_outage(write, seconds=self._outage)
        if done and over:
            self._note(record, arguments)
        return done

    def _note(self, record: StoredResponse, written: Sequence[Argument]) -> None:
        """Record a finished response in the ledger."""
        size = sum(len(each) for each in written if not isinstance(each, int | float))
        log = self._keys.log(record.id)[1] if record.streamed else None
        self._ledger.put("r", record.id, _owner(record.owner), size, log=log)

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        found = await self._server.run(
            scripts.OWNED, [self._keys.record(response_id)], [_owner(owner), *_RECORD]
        )
        return None if found is None else self._record(response_id, *found)

    async def any(self, response_id: str) -> StoredResponse | None:
        """A record, regardless of its owner."""
        found = await self._server.command("HMGET", self._keys.record(response_id), *_RECORD)
        return self._record(response_id, *found)

    def _record(
        self,
        response_id: str,
        meta: bytes | None,
        sent: bytes | None,
        made: bytes | None,
        read: bytes | None,
    ) -> StoredResponse | None:
        if meta is None or sent is None or made is None:
            return None
        record = unpack_record(meta, of=response_id)
        items = _segment(response_id, sent, made)
        if record is None or items is None:
            return None
        record.response.output = items[1]
        return msgspec.structs.replace(record, input=items[0], results=_results(response_id, read))

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """Takes two round trips. None also if an item is missing: an incomplete history counts as missing."""
        found = await self._server.run(
            scripts.OWNED, [self._keys.record(response_id)], [_owner(owner), "a", "b", "i", "u"]
        )
        if found is None:
            return None
        packed, broken, sent, made = found
        if sent is None or made is None:
            return None
        if broken == _BROKEN or packed is None:
            return None
        ancestors = unpack_ids(packed)
        parts = [*await self._segments(ancestors), (sent, made)]
        history: list[Item] = []
        for each, (sent, made) in zip([*ancestors, response_id], parts, strict=True):
            items = None if sent is None or made is None else _segment(each, sent, made)
            if items is None:
                logger.warning("the history of %s lacks the items of %s", response_id, each)
                return None
            history += items[0]
            history += items[1]
        return history

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        """Takes two round trips, or three if an item's newest response was deleted and other responses contain it."""
        homes = await self._homes.find(item_ids, owner)
        found: dict[str, Item] = {}
        for candidates in (
            {each: ids[:1] for each, ids in homes.items()},
            {each: ids[1:] for each, ids in homes.items()},
        ):
            wanted = {each: ids for each, ids in candidates.items() if each not in found}
            responses = list(dict.fromkeys(one for ids in wanted.values() for one in ids))
            for record in await asyncio.gather(
                *(self.get(response_id, owner=owner) for response_id in responses)
            ):
                if record is not None:
                    items = (*record.input, *record.response.output)
                    found |= {item.id: item for item in items if item.id in wanted}
        return found

    async def find_results(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, CallRecord]:
        """Takes two round trips, and one for each response that has results."""
        homes = await self._homes.find(item_ids, owner)
        responses = list(dict.fromkeys(one for ids in homes.values() for one in ids))
        # Keys with the owner's name contain only the owner's responses.
        stored = await asyncio.gather(
            *(self._server.command("HMGET", self._keys.record(each), "r") for each in responses)
        )
        found: dict[str, CallRecord] = {}
        for response_id, [read] in zip(responses, stored, strict=True):
            results = _results(response_id, read)
            here = {item_id: each for item_id, each in results.items() if item_id in homes}
            if here:
                found |= here
                await asyncio.gather(
                    self._touch([response_id], False),
                    self._homes.put(response_id, here, owner, live=self._ttl),
                )
        return found

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        return await self._remove(response_id, _owner(owner), "")

    async def _evict(self, response_id: str, owner: bytes) -> None:
        await self._remove(response_id, owner, "finished")

    async def _remove(self, response_id: str, owner: bytes, which: str) -> bool:
        keys = self._keys.response(response_id)
        gone = await self._server.run(scripts.DELETE, keys, [owner, which])
        if gone is None:
            return False
        parent, items, kept, size = gone
        if size:
            self._ledger.keep("r", response_id, owner, size)
        elif not which:
            self._ledger.drop("r", response_id)
        results = _results(response_id, kept)
        left = [each for each in unpack_ids(items) if each not in results]
        await self._homes.drop(response_id, left, _owned_by(owner))
        if parent:
            await self._remove_items_of(parent.decode(), response_id)
        return True

    async def _remove_items_of(self, parent: str, child: str) -> None:
        """Remove items that were kept only for `child`, in all ancestors."""
        while parent:
            keys = self._keys.response(parent)
            is_gone, above = await self._server.run(scripts.FORSAKE, keys, [child])
            if is_gone:
                self._ledger.drop("r", parent)
            parent, child = above.decode(), parent

    async def _chain(
        self, record: StoredResponse, unfinished: bool
    ) -> tuple[str, list[str], bytes]:
        """Parent and ancestors (oldest first) of a new record, and whether ancestors are missing."""
        parent = record.previous_response_id
        if parent is None or record.conversation_id is not None:
            return "", [], b""
        found = await self._server.run(
            scripts.ADOPT,
            self._keys.response(parent),
            [record.id, _owner(record.owner), self._lifetime(unfinished) + self._expiry_margin],
        )
        if found is None or found[0] == _BROKEN:
            return parent, [], _BROKEN
        return parent, [*unpack_ids(found[1]), parent], b""

    @property
    def _expiry_margin(self) -> int:
        """Milliseconds by which the expiry of ancestors is extended beyond need, so that it is not extended on every
        turn."""
        return self._ttl // 10 + 1000

    def _lifetime(self, unfinished: bool) -> int:
        """Minimum lifetime of a response from now on, in milliseconds."""
        return self._ttl + (_LONGEST_RUN * 1000 if unfinished else 0)

    async def _note_items(self, record: StoredResponse) -> None:
        items = (*record.input, *record.response.output)
        await self._homes.put(record.id, {item.id for item in items}, record.owner, live=self._ttl)

    async def _touch(self, ancestors: Sequence[str], unfinished: bool) -> None:
        """Extend the expiry of ancestors to that of a descendant that was written now."""
        now, lifetime, lives = time.monotonic() * 1000, self._lifetime(unfinished), self._lives
        ancestors = [each for each in ancestors if lives.get(each, 0) < now + lifetime]
        live = lifetime + self._expiry_margin
        await self._extend(ancestors, live)
        if len(lives) > _REMEMBERED:
            lives.clear()
        lives.update(dict.fromkeys(ancestors, now + live))

    async def _extend(self, ancestors: Sequence[str], live: int) -> None:
        if self._server.cluster:
            await asyncio.gather(
                *(
                    self._server.run(scripts.TOUCH, self._keys.response(each), [live])
                    for each in ancestors
                )
            )
            return
        for start in range(0, len(ancestors), _AT_ONCE):
            some = ancestors[start : start + _AT_ONCE]
            keys = [key for each in some for key in self._keys.response(each)]
            await self._server.run(scripts.TOUCH, keys, [live])

    async def _segments(
        self, response_ids: Sequence[str]
    ) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Input and output items of each response."""
        keys = [self._keys.record(each) for each in response_ids]
        if self._server.cluster:
            return list(
                await asyncio.gather(
                    *(self._server.command("HMGET", key, "i", "u") for key in keys)
                )
            )
        found: list[tuple[bytes | None, bytes | None]] = []
        for start in range(0, len(keys), _AT_ONCE):
            found += await self._server.run(scripts.SEGMENTS, keys[start : start + _AT_ONCE], [])
        return found

    def _written(self, record: StoredResponse, expected: str, *, attempt: int) -> list[Argument]:
        """The arguments that the script `put` writes for a record."""
        response = record.response
        bare = msgspec.structs.replace(response, output=[])
        unfinished = response.status in UNFINISHED
        return [
            expected,
            response.status,
            _owner(record.owner),
            pack(msgspec.structs.replace(record, response=bare, input=[], results={})),
            pack(record.input),
            pack(response.output),
            pack_ids([item.id for item in (*record.input, *response.output)]),
            self._tokens.next(),
            0 if unfinished else self._ttl,
            pack(record.results) if record.results else b"",
            record.attempt,
            attempt,
        ]


def _owner(owner: str | None) -> bytes:
    return b"" if owner is None else b"=" + owner.encode()


def _owned_by(stored: bytes) -> str | None:
    return stored[1:].decode() if stored else None


def _segment(response_id: str, sent: bytes, made: bytes) -> tuple[list[Item], list[Item]] | None:
    input_, output = unpack_items(sent, of=response_id), unpack_items(made, of=response_id)
    return None if input_ is None or output is None else (input_, output)


def _results(response_id: str, packed: bytes | None) -> dict[str, CallRecord]:
    return (unpack_results(packed, of=response_id) if packed else None) or {}
