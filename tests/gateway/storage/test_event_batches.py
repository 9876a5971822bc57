"""Batches of events keep each log whole and in order, and every append has an outcome, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import StoreUnavailable
from gateway.storage.event_batches import BatchEntry, EventBatchWriter


class Memory(EventBatchWriter):
    """Stores in memory. Each call of `store` fails if the next of `fails` says so."""

    max_logs = 2
    max_bytes = 40
    max_events = 3

    def __init__(self, fails: Sequence[bool] = (), *, reader_fails: bool = False) -> None:
        super().__init__()
        self.logs: dict[str, list[bytes]] = {}
        self.read: dict[str, list[bytes]] = {}
        self._fails = list(fails)
        self._reader_fails = reader_fails

    async def store(self, batch: Sequence[BatchEntry]) -> Sequence[int]:
        await asyncio.sleep(0)
        if self._fails and self._fails.pop():
            raise StoreUnavailable("The store is away.")
        for each in batch:
            self.logs.setdefault(each.response_id, []).extend(each.events)
        return [len(self.logs[each.response_id]) for each in batch]

    def deliver(self, entry: BatchEntry, length: int) -> None:
        if self._reader_fails:
            raise RuntimeError("a mistake of a reader")
        self.read.setdefault(entry.response_id, []).extend(entry.events)


appends = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 7), st.booleans()), min_size=1, max_size=25
)


@settings(deadline=None)
@given(appends, st.lists(st.booleans(), max_size=8))
def test_a_log_has_what_was_acknowledged_in_order(
    work: list[tuple[str, int, bool]], fails: list[bool]
) -> None:
    async def main() -> None:
        writer = Memory(fails)
        made: list[tuple[str, list[bytes]]] = []
        tasks = []
        for number, (log, count, pauses) in enumerate(work):
            events = [f"{number}.{place}".encode() for place in range(count)]
            made.append((log, events))
            tasks.append(asyncio.create_task(writer.append(log, events, last=False, attempt=1)))
            if pauses:
                await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await writer.close()
        for log in "abc":
            acknowledged = [
                event
                for (where, events), outcome in zip(made, outcomes, strict=True)
                if where == log and outcome is True
                for event in events
            ]
            stored = writer.logs.get(log, [])
            assert writer.read.get(log, []) == stored
            # A large append is stored in parts, so the first parts of one that failed may be there.
            kept = iter(stored)
            assert all(event in kept for event in acknowledged)
            assert all(isinstance(each, StoreUnavailable) or each is True for each in outcomes)

    asyncio.run(main())


@pytest.mark.anyio
async def test_an_append_whose_reader_fails_has_an_outcome() -> None:
    writer = Memory(reader_fails=True)
    appended = asyncio.create_task(writer.append("a", [b"1"], last=False, attempt=1))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="a mistake of a reader"):
        await writer.close()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(appended, 60)


@pytest.mark.anyio
async def test_a_caller_that_leaves_does_not_stop_its_append() -> None:
    writer = Memory()
    leaving = asyncio.create_task(writer.append("a", [b"1"], last=False, attempt=1))
    await asyncio.sleep(0)
    leaving.cancel()
    await writer.append("a", [b"2"], last=False, attempt=1)
    assert writer.logs["a"] == [b"1", b"2"]
