"""Responses and their histories in Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence

import msgspec

from gateway.sdk import UNFINISHED, CallRecord, StoredResponse
from gateway.sdk.stores import (
    WriteTokens,
    cut,
    pack,
    through_outage,
    unpack_items,
    unpack_record,
    unpack_results,
)
from gateway.sdk.wire import Item, ResponseStatus
from gateway_redis import scripts
from gateway_redis.config import RedisConfig
from gateway_redis.items import ItemIndex
from gateway_redis.keys import Keys, stored_owner
from gateway_redis.ledger import Ledger
from gateway_redis.packing import pack_ids, unpack_ids
from gateway_redis.parts import PartTable, Uses
from gateway_redis.server import Argument, RedisServer

logger = logging.getLogger("gateway_redis")

_AT_ONCE = 1000
"""Maximum number of responses whose keys are passed to one script."""

_LONGEST_RUN = 3600
"""Seconds for which the ancestors of a running response are kept beyond their own lifetime."""

_REMEMBERED = 10_000
"""Number of responses whose expiry a process remembers."""

_READS = 3
"""How often a record is read whose large parts are gone: it may have been written again, with others, in between."""

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
        tokens: WriteTokens,
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
        self._parts = PartTable(server, keys, ledger, ttl=self._ttl, outage=config.outage)
        ledger.evicts("r", self._evict)

    async def put(self, record: StoredResponse) -> None:
        unfinished = record.response.status in UNFINISHED
        parent, ancestors, broken = await self._chain(record, unfinished)
        written, uses = await self._written(record, "", attempt=record.attempt)
        arguments: list[Argument] = [*written, parent, pack_ids(ancestors), broken]
        keys = self._keys.response(record.id)
        (left, _, before), _, _ = await asyncio.gather(
            self._server.run(scripts.PUT, keys, arguments),
            self._touch(ancestors, unfinished, stored_owner(record.owner)),
            self._note_items(record),
        )
        if before:
            await self._leave(record, before)
        if left:
            await self._remove_items_of(left.decode(), record.id, stored_owner(record.owner))
        if not unfinished:
            self._note(record, arguments, uses)

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
        arguments, uses = await self._written(
            record,
            f",{','.join(expected)},",
            attempt=record.attempt if attempt is None else attempt,
        )
        over = record.response.status not in UNFINISHED

        async def write() -> bool:
            done = await self._server.run(scripts.PUT, keys, arguments)
            if done is None:
                return False
            if done[2]:
                await self._leave(record, done[2])
            if over:
                await asyncio.gather(
                    self._touch(unpack_ids(done[1]), False, stored_owner(record.owner)),
                    self._note_items(record),
                )
            return True

        done = await through_outage(write, seconds=self._outage)
        if not done and uses.names:
            await self._parts.leave(stored_owner(record.owner), record.id, uses, gone=False)
        if done and over:
            self._note(record, arguments, uses)
        return done

    async def _leave(self, record: StoredResponse, packed: bytes) -> None:
        """Give up the parts of the write before."""
        owner, uses = stored_owner(record.owner), Uses.unpacked(packed)
        await self._parts.leave(owner, record.id, uses, gone=False)

    def _note(self, record: StoredResponse, written: Sequence[Argument], uses: Uses) -> None:
        """Record a finished response in the ledger."""
        size = sum(len(each) for each in written if not isinstance(each, int | float))
        size += uses.charged
        log = self._keys.log(record.id)[1] if record.streamed else None
        self._ledger.put("r", record.id, stored_owner(record.owner), size, log=log)

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        for _ in range(_READS):
            found = await self._server.run(
                scripts.OWNED, [self._keys.record(response_id)], [stored_owner(owner), *_RECORD]
            )
            if found is None:
                return None
            record = await self._record(response_id, stored_owner(owner), *found)
            if record is not None:
                return record
        return None

    async def any(self, response_id: str) -> StoredResponse | None:
        """A record, regardless of its owner."""
        owner, *found = await self._server.command(
            "HMGET", self._keys.record(response_id), "o", *_RECORD
        )
        return await self._record(response_id, owner or b"", *found)

    async def _record(
        self,
        response_id: str,
        owner: bytes,
        meta: bytes | None,
        sent: bytes | None,
        made: bytes | None,
        read: bytes | None,
    ) -> StoredResponse | None:
        meta, sent, made, read = await self._parts.restored(owner, [meta, sent, made, read])
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
            scripts.OWNED,
            [self._keys.record(response_id)],
            [stored_owner(owner), "a", "b", "i", "u"],
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
        packed_items = await self._parts.restored(
            stored_owner(owner), [one for both in parts for one in both]
        )
        history: list[Item] = []
        for each, sent, made in zip(
            [*ancestors, response_id], packed_items[::2], packed_items[1::2], strict=True
        ):
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
        whole = await self._parts.restored(stored_owner(owner), [read for [read] in stored])
        found: dict[str, CallRecord] = {}
        for response_id, read in zip(responses, whole, strict=True):
            results = _results(response_id, read)
            here = {item_id: each for item_id, each in results.items() if item_id in homes}
            if here:
                found |= here
                await asyncio.gather(
                    self._touch([response_id], False, stored_owner(owner)),
                    self._homes.put(response_id, here, owner, live=self._ttl),
                )
        return found

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        return await self._remove(response_id, stored_owner(owner), "")

    async def _evict(self, response_id: str, owner: bytes) -> None:
        await self._remove(response_id, owner, "finished")

    async def _remove(self, response_id: str, owner: bytes, which: str) -> bool:
        keys = self._keys.response(response_id)
        gone = await self._server.run(scripts.DELETE, keys, [owner, which])
        if gone is None:
            return False
        parent, items, kept, size, uses = gone
        if uses:
            await self._parts.leave(owner, response_id, Uses.unpacked(uses), gone=True)
        if size:
            self._ledger.keep("r", response_id, owner, size)
        elif not which:
            self._ledger.drop("r", response_id)
        [kept] = await self._parts.restored(owner, [kept])
        results = _results(response_id, kept)
        left = [each for each in unpack_ids(items) if each not in results]
        await self._homes.drop(response_id, left, _owned_by(owner))
        if parent:
            await self._remove_items_of(parent.decode(), response_id, owner)
        return True

    async def _remove_items_of(self, parent: str, child: str, owner: bytes) -> None:
        """Remove items that were kept only for `child`, in all ancestors."""
        while parent:
            keys = self._keys.response(parent)
            is_gone, above, uses = await self._server.run(scripts.FORSAKE, keys, [child])
            if is_gone:
                self._ledger.drop("r", parent)
            if uses:
                await self._parts.leave(owner, parent, Uses.unpacked(uses), gone=True)
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
            [
                record.id,
                stored_owner(record.owner),
                self._lifetime(unfinished) + self._expiry_margin,
            ],
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

    async def _touch(self, ancestors: Sequence[str], unfinished: bool, owner: bytes) -> None:
        """Extend the expiry of ancestors to that of a descendant that was written now."""
        now, lifetime, lives = time.monotonic() * 1000, self._lifetime(unfinished), self._lives
        ancestors = [each for each in ancestors if lives.get(each, 0) < now + lifetime]
        live = lifetime + self._expiry_margin
        uses = await self._extend(ancestors, live)
        if uses:
            names = {name for packed in uses for name in Uses.unpacked(packed).names}
            await self._parts.touch(owner, names, live)
        if len(lives) > _REMEMBERED:
            lives.clear()
        lives.update(dict.fromkeys(ancestors, now + live))

    async def _extend(self, ancestors: Sequence[str], live: int) -> Sequence[bytes]:
        """Extend the expiry of responses. Returns what they note about their large parts."""
        if self._server.cluster:
            found = await asyncio.gather(
                *(
                    self._server.run(scripts.TOUCH, self._keys.response(each), [live])
                    for each in ancestors
                )
            )
            return [uses for each in found for uses in each]
        noted: list[bytes] = []
        for start in range(0, len(ancestors), _AT_ONCE):
            some = ancestors[start : start + _AT_ONCE]
            keys = [key for each in some for key in self._keys.response(each)]
            noted += await self._server.run(scripts.TOUCH, keys, [live])
        return noted

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

    async def _written(
        self, record: StoredResponse, expected: str, *, attempt: int
    ) -> tuple[list[Argument], Uses]:
        """The arguments that the script `put` writes for a record, and the uses of its large parts, which are stored."""
        response = record.response
        bare = msgspec.structs.replace(response, output=[])
        unfinished = response.status in UNFINISHED
        meta = cut(pack(msgspec.structs.replace(record, response=bare, input=[], results={})))
        sent, made = cut(pack(record.input)), cut(pack(response.output))
        results = cut(pack(record.results) if record.results else b"")
        token = self._tokens.next()
        parts: dict[str, bytes] = {}
        for each in (meta, sent, made, results):
            parts |= each.parts
        uses = Uses(token, 0, ())
        if parts:
            owner, live = stored_owner(record.owner), self._lifetime(unfinished)
            uses = await self._parts.hold(owner, record.id, token, parts, live=live)
        arguments: list[Argument] = [
            expected,
            response.status,
            stored_owner(record.owner),
            meta.data,
            sent.data,
            made.data,
            pack_ids([item.id for item in (*record.input, *response.output)]),
            token,
            0 if unfinished else self._ttl,
            results.data,
            record.attempt,
            attempt,
            uses.packed() if parts else "",
        ]
        return arguments, uses


def _owned_by(stored: bytes) -> str | None:
    return stored[1:].decode() if stored else None


def _segment(response_id: str, sent: bytes, made: bytes) -> tuple[list[Item], list[Item]] | None:
    input_, output = unpack_items(sent, of=response_id), unpack_items(made, of=response_id)
    return None if input_ is None or output is None else (input_, output)


def _results(response_id: str, packed: bytes | None) -> dict[str, CallRecord]:
    return (unpack_results(packed, of=response_id) if packed else None) or {}
