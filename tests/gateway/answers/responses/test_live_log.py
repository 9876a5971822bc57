"""What a follower gets from a live log, and then from the store, is each event once."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.responses.live_log import LiveLog
from gateway.wire.common import encode
from gateway.wire.event_frames import sse_frame
from gateway.wire.events import Event, OutputTextDelta, ResponseCompleted
from gateway.wire.response import Response


def made(count: int) -> list[Event]:
    """A stream of so many events, of which the last is its end."""
    deltas: list[Event] = [
        OutputTextDelta(
            sequence_number=number, item_id="msg_1", output_index=0, content_index=0, delta="x", logprobs=[]
        )
        for number in range(count - 1)
    ]  # fmt: skip
    response = Response(id="resp_1", created_at=0, model="m", status="completed")
    return [*deltas, ResponseCompleted(sequence_number=count - 1, response=response)]


class Client:
    """Takes what is written, but for the times at which it cannot."""

    def __init__(self, refusals: set[int]) -> None:
        self.got = b""
        self._refusals = refusals
        self._asked = 0

    def write(self, body: bytes) -> bool:
        self._asked += 1
        if self._asked in self._refusals:
            return False
        self.got += body
        return True


@given(
    st.integers(1, 30),
    st.lists(st.integers(1, 5), max_size=30),
    st.lists(st.tuples(st.integers(0, 10), st.integers(-1, 35), st.sets(st.integers(1, 12)))),
    st.sets(st.integers(0, 10)),
    st.booleans(),
    st.booleans(),
)
def test_each_follower_has_each_event_once_whatever_happens(
    count: int,
    sizes: list[int],
    clients: list[tuple[int, int, set[int]]],
    untold: set[int],
    breaks: bool,
    directly: bool,
) -> None:
    """Followers come at any time and from any place, some cannot take it; some batches are stored and not told of."""
    events = made(count)

    async def main() -> None:
        log = LiveLog()
        stored: list[Event] = []
        following = []
        left, batch = list(events), 0
        while left:
            for at_batch, at, refusals in clients:
                if at_batch == batch and log.count <= at + 1:
                    client = Client(refusals)
                    following.append(
                        (at, client, asyncio.ensure_future(log.follow(at, client.write)))
                    )
            await asyncio.sleep(0)
            size = sizes[batch] if batch < len(sizes) else 1
            told, left = left[:size], left[size:]
            stored += told
            if batch not in untold:
                first, last = told[0].sequence_number, not left
                if len(told) == 1 and not last:
                    frame, write = sse_frame(told[0]), log.write_one if directly else None
                    if first == log.count and write is not None and write(frame):
                        log.count = first + 1
                    else:
                        log.publish_one(first, frame)
                else:
                    log.publish(first, [encode(event) for event in told], last)
            batch += 1
            if breaks and batch == 5:
                break
        log.end()
        for at, client, task in following:
            follower = await asyncio.wait_for(task, 60)
            rest = [] if follower.complete else stored[follower.at + 1 :]
            whole = client.got + b"".join(map(sse_frame, rest))
            assert whole == b"".join(map(sse_frame, stored[at + 1 :]))

    asyncio.run(main())


def test_who_comes_after_the_end_is_sent_to_the_store() -> None:
    async def main() -> None:
        log = LiveLog()
        events = made(2)
        log.publish(0, [encode(event) for event in events], True)
        log.end()
        follower = await log.follow(1, lambda body: True)
        assert (follower.at, follower.complete) == (1, False)

    asyncio.run(main())


def test_a_follower_that_leaves_is_forgotten() -> None:
    async def main() -> None:
        log = LiveLog()
        task = asyncio.create_task(log.follow(-1, lambda body: True))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        client = Client(set())
        other = asyncio.create_task(log.follow(-1, client.write))
        await asyncio.sleep(0)
        events = made(3)
        log.publish(0, [encode(event) for event in events], True)
        assert (await other).complete
        frames = client.got.decode().split("\n\n")[:-1]
        assert [json.loads(f.split("data: ")[1])["sequence_number"] for f in frames] == [0, 1, 2]

    asyncio.run(main())
