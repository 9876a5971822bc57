"""Stores without end, and prints what was acknowledged: a program that the tests kill.

`storing_process.py FILE [BYTES]`: with BYTES, no file may become larger, as on a disk that is full. It then stores until the
store is unhealthy, and goes on without the limit.
"""

from __future__ import annotations

import asyncio
import resource
import sys

from gateway.base.errors import StoreUnavailable
from gateway.wire.response import Conversation
from gateway_sqlite import SqliteConfig, open_sqlite
from gateway_testing.store_records import message, record


def say(*words: object) -> None:
    print(*words, flush=True)


async def main() -> None:
    async with open_sqlite(SqliteConfig(path=sys.argv[1])) as store:
        if len(sys.argv) > 2:
            unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), unlimited[1]))

        async def store_one(conversation: str, number: int, previous: str | None) -> str:
            made = record(
                status="in_progress",
                streamed=True,
                previous_response_id=previous,
                output=[message("assistant", "x" * 2000)],
            )
            await store.put(made)
            say("put", made.id)
            for at in range(5):
                await store.append_events(made.id, [b"%d" % at], last=False)
                say("events", made.id, at + 1)
            await store.advance(
                record(response_id=made.id, streamed=True, previous_response_id=previous),
                expected=("in_progress",),
            )
            say("finished", made.id)
            item = f"msg_{conversation}_{number}"
            await store.append_items(conversation, [message("user", "y", item_id=item)])
            say("item", conversation, item)
            return made.id

        async def work(conversation: str) -> None:
            await store.put_conversation(Conversation(id=conversation, created_at=1))
            previous = None
            for number in range(1_000_000):
                previous = await store_one(conversation, number, previous)

        async def store_until_full(attempt: int) -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for worker in range(4):
                        group.create_task(work(f"conv_{attempt}_{worker}"))
            except* StoreUnavailable:
                say("full")

        async def healthy() -> bool:
            try:
                await store.health()
            except StoreUnavailable:
                return False
            return True

        await store_until_full(0)
        attempt = 0
        # The log of SQLite, at its limit, may be written back when the connection is closed: then there is room again.
        while await healthy():
            attempt += 1
            await store_until_full(attempt)
        say("unhealthy")
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        await store.health()
        last = record()
        await store.put(last)
        say("put", last.id)
        say("recovered")


asyncio.run(main())
