"""Responses and their histories in Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec

from gateway.protocols import UNFINISHED, CallRecord, StoredResponse
from gateway.wire.items import Item
from gateway.wire.response import ResponseStatus
from gateway_redis import scripts
from gateway_redis.config import RedisConfig
from gateway_redis.finished import FinishedIndex
from gateway_redis.items import ItemHomes
from gateway_redis.keys import Keys
from gateway_redis.packing import (
    pack,
    pack_ids,
    unpack_ids,
    unpack_items,
    unpack_record,
    unpack_results,
)
from gateway_redis.server import Server, through_outage
from gateway_redis.tokens import Tokens

logger = logging.getLogger("gateway_redis")

_AT_ONCE = 1000
"""Responses whose keys one script is given."""

_LONGEST_RUN = 3600
"""Seconds for which what a running response continues is kept beyond its own time."""

_REMEMBERED = 10_000
"""Responses of which a process remembers for how long they live."""

_BROKEN = b"1"


class ResponseRecords:
    """The part `Responses` of the store."""

    def __init__(self, server: Server, keys: Keys, config: RedisConfig, tokens: Tokens) -> None:
        self._server = server
        self._keys = keys
        self._tokens = tokens
        self._outage = config.outage
        self._ttl = max(1, int(config.ttl * 1000))
        self._homes = ItemHomes(server, keys)
        self._lives: dict[str, float] = {}
        """Until when (`time.monotonic`, ms) a response lives at least, as this process has seen to it."""
        self._finished = FinishedIndex(
            server,
            keys.index,
            most=config.max_responses,
            seconds=config.ttl,
            evict=partial(self._remove, mode="*"),
        )

    async def close(self) -> None:
        """Stop what goes on beside the requests."""
        await self._finished.close()

    async def put(self, record: StoredResponse) -> None:
        unfinished = record.response.status in UNFINISHED
        parent, ancestors, broken = await self._chain(record, unfinished)
        written = self._written(record, "", attempt=record.attempt)
        arguments = [*written, parent, pack_ids(ancestors), broken]
        keys = self._keys.response(record.id)
        (left, _), _, _ = await asyncio.gather(
            self._server.run(scripts.PUT, keys, arguments),
            self._touch(ancestors, unfinished),
            self._note_items(record),
        )
        if left:
            await self._forsake(left.decode(), record.id)
        if not unfinished:
            self._finished.add(record.id)

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        """Goes on over a short absence of Redis: the same call again finds what it has done."""
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
            self._finished.add(record.id)
        return done

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        found = await self.any(response_id)
        return found if found is not None and found.owner == owner else None

    async def any(self, response_id: str) -> StoredResponse | None:
        """A record, whoever owns it."""
        key = self._keys.record(response_id)
        meta, sent, made, read = await self._server.command("HMGET", key, "m", "i", "u", "r")
        if meta is None or sent is None or made is None:
            return None
        record = unpack_record(meta, of=response_id)
        items = _segment(response_id, sent, made)
        if record is None or items is None:
            return None
        record.response.output = items[1]
        return msgspec.structs.replace(record, input=items[0], results=_results(response_id, read))

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """In two round trips; None also where an item is lost: half a history is none."""
        key = self._keys.record(response_id)
        stored, packed, broken, sent, made = await self._server.command(
            "HMGET", key, "o", "a", "b", "i", "u"
        )
        if stored != _owner(owner) or sent is None or made is None:
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
        """In two round trips, or three where an item's last response is gone and it is in others as well."""
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
        """In two round trips, and one for each response that has some."""
        homes = await self._homes.find(item_ids, owner)
        responses = list(dict.fromkeys(one for ids in homes.values() for one in ids))
        # Under the owner's name are the owner's responses alone.
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
        return await self._remove(response_id, mode=_owner(owner))

    async def _remove(self, response_id: str, *, mode: bytes | str) -> bool:
        keys = self._keys.response(response_id)
        gone = await self._server.run(scripts.DELETE, keys, [mode])
        if gone is None:
            return False
        parent, items, owner, kept = gone
        results = _results(response_id, kept)
        left = [each for each in unpack_ids(items) if each not in results]
        await self._homes.drop(response_id, left, _owned_by(owner))
        if parent:
            await self._forsake(parent.decode(), response_id)
        return True

    async def _forsake(self, parent: str, child: str) -> None:
        """Let go of items that were kept for `child` alone, all the way up."""
        while parent:
            keys = self._keys.response(parent)
            above = await self._server.run(scripts.FORSAKE, keys, [child])
            parent, child = above.decode(), parent

    async def _chain(
        self, record: StoredResponse, unfinished: bool
    ) -> tuple[str, list[str], bytes]:
        """A new record's parent and ancestors, oldest first, and whether they are lost."""
        parent = record.previous_response_id
        if parent is None or record.conversation_id is not None:
            return "", [], b""
        found = await self._server.run(
            scripts.ADOPT,
            self._keys.response(parent),
            [record.id, _owner(record.owner), self._lifetime(unfinished) + self._margin],
        )
        if found is None or found[0] == _BROKEN:
            return parent, [], _BROKEN
        return parent, [*unpack_ids(found[1]), parent], b""

    @property
    def _margin(self) -> int:
        """Milliseconds that ancestors get beyond what they need, so that they need not get it with every turn."""
        return self._ttl // 10 + 1000

    def _lifetime(self, unfinished: bool) -> int:
        """Milliseconds for which a response lives at least, from now on."""
        return self._ttl + (_LONGEST_RUN * 1000 if unfinished else 0)

    async def _note_items(self, record: StoredResponse) -> None:
        items = (*record.input, *record.response.output)
        await self._homes.put(record.id, {item.id for item in items}, record.owner, live=self._ttl)

    async def _touch(self, ancestors: Sequence[str], unfinished: bool) -> None:
        """Have ancestors live as long as a descendant that was written now."""
        now, lifetime, lives = time.monotonic() * 1000, self._lifetime(unfinished), self._lives
        ancestors = [each for each in ancestors if lives.get(each, 0) < now + lifetime]
        live = lifetime + self._margin
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
        """Input and output items of each."""
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

    def _written(
        self, record: StoredResponse, expected: str, *, attempt: int
    ) -> list[str | bytes | int]:
        """What the script `put` writes of a record."""
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
