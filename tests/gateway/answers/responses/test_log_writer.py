"""Whatever a store answers, and when: the log is without gap or duplicate, and clients see nothing that is not in it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.responses.live_log import LiveLog
from gateway.answers.responses.log_writer import LogWriter
from gateway.base.errors import StoreUnavailable
from gateway.plugins.protocols import StoredResponse
from gateway.wire.common import encode
from gateway.wire.event_frames import sse_frame
from gateway.wire.events import Event, OutputTextDelta, ResponseCompleted
from gateway.wire.response import Response
from gateway_memory.store import MemoryStore


class LateStore(MemoryStore):
    """Answers some turns of the event loop later, and fails before or after some appends."""

    def __init__(self, answers: list[str]) -> None:
        super().__init__()
        self._answers = iter(answers)
        self._waiting: list[tuple[Any, bool]] = []

    def open_log(self, response_id: str, heard: Any, *, attempt: int = 0) -> Any:
        write = super().open_log(response_id, heard, attempt=attempt)
        loop = asyncio.get_running_loop()

        def answer() -> None:
            if not self._waiting:
                return  # it failed with the one before
            kind = next(self._answers, "stored")
            added = kind != "before" and write(*self._waiting.pop(0))
            if kind == "stored":
                heard(added)
                return
            count = len(self._waiting) + (kind == "after")
            self._waiting.clear()
            for _ in range(count):
                heard(StoreUnavailable(kind))

        def append(events: Any, last: bool) -> None:
            self._waiting.append((events, last))
            loop.call_soon(loop.call_soon, answer)

        return append

    async def count_events(self, response_id: str) -> int:
        while self._waiting:  # noqa: ASYNC110  # as many turns of the loop as it takes
            await asyncio.sleep(0)
        return await super().count_events(response_id)


class WaitingStore(MemoryStore):
    """Has no `open_log`, and fails before or after some appends."""

    open_log = None  # type: ignore[assignment]

    def __init__(self, answers: list[str]) -> None:
        super().__init__()
        self._answers = iter(answers)

    async def append_events(self, *arguments: Any, **options: Any) -> bool:
        kind = next(self._answers, "stored")
        await asyncio.sleep(0)
        added = kind != "before" and await super().append_events(*arguments, **options)
        if kind != "stored":
            raise StoreUnavailable(kind)
        return added


def made(count: int) -> list[Event]:
    """A stream of so many events, of which the last is its end."""
    deltas: list[Event] = [
        OutputTextDelta(
            sequence_number=number, item_id="msg_1", output_index=0, content_index=0, delta="x"
        )
        for number in range(count - 1)
    ]
    response = Response(id="resp_1", created_at=0, model="m", status="completed")
    return [*deltas, ResponseCompleted(sequence_number=count - 1, response=response)]


@given(
    st.sampled_from((LateStore, WaitingStore)),
    st.integers(2, 200),
    st.lists(st.integers(1, 3), max_size=200),
    st.lists(st.sampled_from(("stored",) * 8 + ("before", "after")), max_size=60),
    st.lists(st.booleans(), max_size=60),
    st.integers(0, 3),
)
def test_the_log_is_whole_and_clients_see_what_is_in_it(
    kind: type[Any],
    count: int,
    sizes: list[int],
    answers: list[str],
    pauses: list[bool],
    told: int,
) -> None:
    events = made(count)
    told = min(told, count - 1)

    async def main() -> None:
        store = kind(answers)
        response = Response(id="resp_1", created_at=0, model="m", status="in_progress")
        await store.put(StoredResponse(response=response, input=[], streamed=True))
        if told:
            await MemoryStore.append_events(store, "resp_1", [encode(e) for e in events[:told]])
        run: Any = SimpleNamespace(
            output=SimpleNamespace(response=response, storage=SimpleNamespace(attempt=0))
        )
        live = LiveLog()
        writer = LogWriter(store, run, live, told)
        got: list[bytes] = []
        log = store._log("resp_1")

        def take(body: bytes) -> bool:
            got.append(body)
            shown = b"".join(got).count(b"\n\n")
            assert told + shown <= len(log), "a client saw what is not stored"
            return True

        following = asyncio.create_task(live.follow(told - 1, take))
        await asyncio.sleep(0)
        left, batch, failed = list(events), 0, False
        while left:
            size = (
                len(left) if failed else min(sizes[batch] if batch < len(sizes) else 1, len(left))
            )
            some, left = left[:size], left[size:]
            try:
                await writer.write(some)
            except StoreUnavailable:
                failed = True
            if batch < len(pauses) and pauses[batch]:
                await asyncio.sleep(0)
            batch += 1
        live.end()
        follower = await asyncio.wait_for(following, 60)
        stored = [event async for part in _stored(store) for event in part]
        assert stored == [encode(event) for event in events][: len(stored)]
        shown = b"".join(got)
        assert shown == b"".join(map(sse_frame, events[told : follower.at + 1]))
        assert follower.at < len(stored)
        assert failed or len(stored) == count

    asyncio.run(main())


async def _stored(store: MemoryStore) -> Any:
    yield list(store._log("resp_1")._events)
