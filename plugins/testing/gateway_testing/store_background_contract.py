"""The contract of stores for event logs and leases."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from msgspec import structs

from gateway.plugins.protocols import UNFINISHED, BufferedAppends, ResponseStore, StoredResponse
from gateway.wire.common import encode
from gateway.wire.response import ResponseStatus
from gateway_testing.store_records import message, record

_RUNNING: tuple[ResponseStatus, ...] = ("in_progress",)
_PATIENCE = 60.0
"""Time limit in seconds for each wait."""


class BackgroundContract:
    """Event logs, leases and cancellation, which background responses use."""

    async def test_events_are_replayed_from_any_place(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 3))
        await store.append_events(kept, _events(3, 5), last=True)
        assert await store.count_events(kept) == 5
        for after in range(-1, 6):
            assert await self._all(store, kept, after) == _events(after + 1, 5)

    async def test_a_log_is_followed_to_its_end(self, store: ResponseStore) -> None:
        """Readers that started before the first event, and later ones, get all events without gaps or duplicates."""
        kept = await self._running(store)
        early = [asyncio.create_task(self._all(store, kept, -1)) for _ in range(3)]
        for start in range(0, 50, 5):
            await asyncio.sleep(0.005)
            await store.append_events(kept, _events(start, start + 5))
        late = asyncio.create_task(self._all(store, kept, 20))
        await asyncio.sleep(0.02)
        await store.append_events(kept, _events(50, 51), last=True)
        async with asyncio.timeout(_PATIENCE):
            assert [await each for each in early] == [_events(0, 51)] * 3
            assert await late == _events(21, 51)

    @pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
    async def test_every_end_ends_every_reader(
        self, store: ResponseStore, status: ResponseStatus
    ) -> None:
        """The end also reaches readers that wait, readers that are behind, and later ones."""
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 3))
        waiting = [asyncio.create_task(self._all(store, kept, after)) for after in (-1, 0, 2)]
        behind = store.read_events(kept)
        first = await anext(behind)
        await asyncio.sleep(0.05)
        assert await store.advance(record(response_id=kept, status=status), expected=_RUNNING)
        await store.append_events(kept, _events(3, 5), last=True)
        async with asyncio.timeout(_PATIENCE), aclosing(behind):
            assert [await each for each in waiting] == [_events(at, 5) for at in (0, 1, 3)]
            rest = [event async for batch in behind for event in batch]
            assert [*first, *rest] == _events(0, 5)
            assert await self._all(store, kept, 1) == _events(2, 5)

    async def test_many_logs_are_followed_at_once(self, store: ResponseStore) -> None:
        ids = [await self._running(store) for _ in range(50)]
        readers = [asyncio.create_task(self._all(store, each, -1)) for each in ids * 3]
        for at in range(10):
            await asyncio.gather(
                *(store.append_events(each, _events(at, at + 1), last=at == 9) for each in ids)
            )
        async with asyncio.timeout(_PATIENCE):
            assert [await each for each in readers] == [_events(0, 10)] * 150

    async def test_a_slow_reader_misses_nothing(self, store: ResponseStore) -> None:
        """The reader reads one batch, and continues when megabytes are available."""
        kept = await self._running(store)
        large = [b"%d " % number + b"x" * 50_000 for number in range(120)]
        await store.append_events(kept, large[:1])
        async with asyncio.timeout(_PATIENCE), aclosing(store.read_events(kept)) as reader:
            got = list(await anext(reader))
            more = asyncio.ensure_future(anext(reader))
            await asyncio.sleep(0.05)
            for at in range(1, 120):
                await store.append_events(kept, large[at : at + 1], last=at == 119)
            got += await more
            got += [event async for batch in reader for event in batch]
        assert got == large

    async def test_what_is_there_comes_in_one_batch(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 40))
        async with asyncio.timeout(_PATIENCE), aclosing(store.read_events(kept)) as reader:
            assert list(await anext(reader)) == _events(0, 40)

    async def test_a_reader_may_leave(self, store: ResponseStore) -> None:
        """Other readers are not affected, even if a reader leaves while it waits."""
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 1))
        leaving = asyncio.create_task(self._all(store, kept, 0))
        staying = asyncio.create_task(self._all(store, kept, -1))
        await asyncio.sleep(0.05)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await store.append_events(kept, _events(1, 2), last=True)
        async with asyncio.timeout(_PATIENCE):
            assert await staying == _events(0, 2)

    async def test_deleting_ends_the_readers(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 2))
        async with asyncio.timeout(_PATIENCE), aclosing(store.read_events(kept)) as reader:
            assert list(await anext(reader)) == _events(0, 2)
            more = asyncio.ensure_future(anext(reader, None))
            await asyncio.sleep(0.05)
            assert await store.delete(kept)
            assert await more is None
        await store.append_events(kept, _events(2, 3), last=True)
        assert await store.count_events(kept) == 0
        async with asyncio.timeout(_PATIENCE):
            assert await self._all(store, kept, -1) == []

    async def test_events_of_nothing_are_none(self, store: ResponseStore) -> None:
        nobody = f"resp_{uuid.uuid4().hex}"
        await store.append_events(nobody, _events(0, 1))
        assert await store.count_events(nobody) == 0
        async with asyncio.timeout(_PATIENCE):
            assert await self._all(store, nobody, -1) == []

    async def test_advancing_keeps_the_events(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 2), last=True)
        done = record(response_id=kept, output=[message("assistant", "x")])
        assert await store.advance(done, expected=_RUNNING)
        assert await self._all(store, kept, -1) == _events(0, 2)

    async def test_what_has_ended_takes_no_more_events_but_its_last(
        self, store: ResponseStore
    ) -> None:
        """A process that was considered dead continues to write, while another process has ended its response and ends
        the log."""
        kept = await self._running(store)
        await store.append_events(kept, _events(0, 2))
        done = record(response_id=kept, status="failed", streamed=True)
        assert await store.advance(done, expected=_RUNNING)
        assert not await store.append_events(kept, _events(2, 4))
        assert await store.count_events(kept) == 2
        assert await store.append_events(kept, _events(2, 3000), last=True)
        assert not await store.append_events(kept, _events(3000, 3001), last=True)
        assert await self._all(store, kept, -1) == _events(0, 3000)

    async def test_a_new_attempt_ends_what_the_one_before_may_write(
        self, store: ResponseStore
    ) -> None:
        """A process that was considered dead, but is alive, can change neither the log nor the response."""
        begun = record(status="in_progress", streamed=True)
        await store.put(begun)
        kept = begun.id
        heard: list[object] = []
        write = store.open_log(kept, heard.append) if isinstance(store, BufferedAppends) else None
        await store.append_events(kept, _events(0, 3))
        again = record(response_id=kept, status="queued", streamed=True, attempt=1)
        assert not await store.advance(again, expected=_RUNNING)
        assert await store.advance(again, expected=_RUNNING, attempt=0)
        assert not await store.advance(again, expected={"queued"}, attempt=0)
        for last in (False, True):
            assert not await store.append_events(kept, _events(3, 5), last=last)
        if write is not None and (refused := write(_events(3, 5), False)) is not False:
            assert refused is None
            assert await store.count_events(kept) == 3
            assert heard == [False]
        late = record(response_id=kept, status="completed", streamed=True)
        assert not await store.advance(late, expected=UNFINISHED)
        assert await store.append_events(kept, _events(3, 4), attempt=1)
        if isinstance(store, BufferedAppends):
            store.open_log(kept, heard.append, attempt=1)(_events(4, 5), False)
        else:
            await store.append_events(kept, _events(4, 5), attempt=1)
        assert await store.count_events(kept) == 5
        found = await store.get(kept)
        assert found is not None
        assert (found.attempt, found.response.status) == (1, "queued")
        done = record(response_id=kept, status="completed", streamed=True, attempt=1)
        assert await store.advance(done, expected=UNFINISHED)
        assert await store.append_events(kept, _events(5, 6), last=True, attempt=1)
        assert await self._all(store, kept, -1) == _events(0, 6)

    async def test_an_end_that_is_announced_is_kept_for_whoever_completes_it(
        self, store: ResponseStore
    ) -> None:
        """A process that has read the response before cannot end it differently. A process that takes it over reads how
        it ends."""
        said = [message("assistant", "an answer")]
        begun = record(status="in_progress", conversation_id="conv_x")
        await store.put(begun)
        end = record(response_id=begun.id)
        ending = structs.replace(
            record(
                response_id=begun.id,
                status="in_progress",
                conversation_id="conv_x",
                output=said,
                attempt=1,
            ),
            ending=end.response,
        )
        assert await store.advance(ending, expected=UNFINISHED, attempt=0)
        await store.lease("dead", [begun.id], seconds=0.01)
        failed = record(response_id=begun.id, status="failed", conversation_id="conv_x")
        assert not await store.advance(failed, expected=UNFINISHED)
        found: StoredResponse | None = None
        async with asyncio.timeout(_PATIENCE):
            while found is None:
                taken = await store.take_orphans("alive", seconds=60)
                found = next((each for each in taken if each.id == begun.id), None)
                await asyncio.sleep(0.01)
        assert encode(found) == encode(ending)
        assert found.ending == end.response
        done = record(response_id=begun.id, conversation_id="conv_x", output=said, attempt=1)
        assert await store.advance(done, expected=UNFINISHED)
        completed = await store.get(begun.id)
        assert completed is not None
        assert completed.ending is None

    async def test_what_is_appended_without_waiting_is_in_order_and_before_what_follows(
        self, store: ResponseStore
    ) -> None:
        """For stores with `open_log`: each append is reported once, and all of them before the response is ended."""
        if not isinstance(store, BufferedAppends):
            pytest.skip("it is always waited for")
        kept = await self._running(store)
        heard: list[object] = []
        write = store.open_log(kept, heard.append)
        answers = [write(_events(at, at + 1), False) for at in range(100)]
        assert set(answers) <= {True, None}
        done = record(response_id=kept, status="completed", streamed=True)
        assert await store.advance(done, expected=_RUNNING)
        assert heard == [True] * answers.count(None)
        assert await store.count_events(kept) == 100
        late = write(_events(100, 101), False)
        assert await store.count_events(kept) == 100
        assert late is False or (late, heard.pop()) == (None, False)
        write(_events(100, 103), True)
        assert await self._all(store, kept, -1) == _events(0, 103)
        assert set(heard) <= {True}

    async def test_what_has_ended_without_its_log_is_an_orphan(self, store: ResponseStore) -> None:
        """The process died after it had ended the response and before it ended the log. A response without a log is
        complete."""
        streamed, plain = await self._running(store), await self._running(store)
        await store.lease("owner", [streamed, plain], seconds=0.05)
        for kept in (streamed, plain):
            done = record(response_id=kept, streamed=kept == streamed)
            assert await store.advance(done, expected=_RUNNING)
        await asyncio.sleep(0.15)
        found = await store.take_orphans("other", seconds=0.05)
        assert [each.id for each in found if each.id in (streamed, plain)] == [streamed]
        await store.append_events(streamed, _events(0, 1), last=True)
        await asyncio.sleep(0.15)
        assert streamed not in await self._orphans(store, "third")

    async def test_what_is_leased_is_no_orphan(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.lease("owner", [kept], seconds=60)
        assert kept not in await self._orphans(store, "other")

    async def test_an_orphan_is_taken_once(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.lease("dead", [kept], seconds=0.05)
        await asyncio.sleep(0.15)
        taken = await asyncio.gather(*(self._orphans(store, f"other-{n}") for n in range(5)))
        assert [kept in ids for ids in taken].count(True) == 1
        assert kept not in await self._orphans(store, "later")

    async def test_an_orphan_is_whole(self, store: ResponseStore) -> None:
        left = record(status="queued", owner="ada", streamed=True, request=b"{}")
        await store.put(left)
        await store.lease("dead", [left.id], seconds=0.05)
        await asyncio.sleep(0.15)
        (found,) = [
            each for each in await store.take_orphans("heir", seconds=60) if each.id == left.id
        ]
        assert (found.owner, found.streamed, found.request) == ("ada", True, b"{}")
        assert found.response.status == "queued"

    async def test_a_renewed_lease_lasts(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        for _ in range(4):
            await store.lease("owner", [kept], seconds=1.0)
            await asyncio.sleep(0.02)
        await store.lease("owner", [kept], seconds=60)
        assert kept not in await self._orphans(store, "other")

    async def test_what_has_ended_is_no_orphan(self, store: ResponseStore) -> None:
        kept = await self._running(store)
        await store.lease("owner", [kept], seconds=0.05)
        done = record(response_id=kept)
        assert await store.advance(done, expected=_RUNNING)
        await store.release("owner", kept)
        await asyncio.sleep(0.15)
        assert kept not in await self._orphans(store, "other")

    async def test_a_request_to_cancel_arrives(self, store: ResponseStore) -> None:
        async with aclosing(store.cancel_requests()) as requests:
            first = asyncio.ensure_future(anext(requests))
            early, *wanted = (f"resp_{uuid.uuid4().hex}" for _ in range(4))
            async with asyncio.timeout(_PATIENCE):
                while not first.done():  # requests may be lost until there is a listener
                    await store.request_cancel(early)
                    await asyncio.wait([first], timeout=0.1)
                assert await first == early
                for each in wanted:
                    await store.request_cancel(each)
                got: list[str] = []
                while len(got) < len(wanted):
                    if (found := await anext(requests)) != early:
                        got.append(found)
        assert got == wanted

    async def _running(self, store: ResponseStore) -> str:
        kept = record(status="in_progress", streamed=True)
        await store.put(kept)
        return kept.id

    async def _all(self, store: ResponseStore, response_id: str, after: int) -> list[bytes]:
        async with aclosing(store.read_events(response_id, after=after)) as reader:
            return [event async for batch in reader for event in batch]

    async def _orphans(self, store: ResponseStore, holder: str) -> list[str]:
        return [each.id for each in await store.take_orphans(holder, seconds=60)]


def _events(start: int, end: int) -> list[bytes]:
    events: Sequence[bytes] = [
        b'{"sequence_number":%d,"text":"\xc3\xa9\\n"}' % number for number in range(start, end)
    ]
    return list(events)
