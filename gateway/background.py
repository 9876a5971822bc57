"""Background responses: the same run as a task of this process, which nobody has to wait for.

Each has a lease in the store, renewed by one heartbeat for all; where a process dies, another one finds its responses by
their run-out leases and gives each its one terminal state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from gateway.errors import GatewayError, StoreUnavailable
from gateway.protocols import UNFINISHED, ResponseStore, StoredResponse
from gateway.recovery import closing_events
from gateway.run import ResponseRun
from gateway.wire.common import encode
from gateway.wire.events import TERMINAL, Event
from gateway.wire.ids import new_id
from gateway.wire.response import ResponseError, snapshot

logger = logging.getLogger("gateway.background")


class OwnerLost(GatewayError):
    """The process that ran a background response is gone."""

    default_code = "owner_lost"


class BackgroundRuns:
    """The background responses of one process."""

    def __init__(self, store: ResponseStore, *, lease_seconds: float) -> None:
        """`lease_seconds`: how long after its owner's death a response is given its end by somebody else."""
        self._store = store
        self._lease_seconds = lease_seconds
        self._holder = new_id("proc_")
        self._runs: dict[str, ResponseRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While inside: leases are renewed, requests to cancel are heard, orphans are found."""
        watchers = [
            asyncio.create_task(self._again_and_again(self._renew, self._lease_seconds / 3)),
            asyncio.create_task(self._again_and_again(self._find_orphans, self._lease_seconds / 2)),
            asyncio.create_task(self._again_and_again(self._hear_cancellations, 0.2)),
        ]
        try:
            yield
        finally:
            for task in (*watchers, *self._tasks):
                task.cancel()
            await asyncio.gather(*watchers, *self._tasks, return_exceptions=True)

    async def start(self, run: ResponseRun) -> StoredResponse:
        """Store a prepared run as queued, and run it from now on without its client; what was stored."""
        run.response.status = "queued"
        record = run.record()
        try:
            await self._store.put(record)
            await self._store.lease(self._holder, [record.id], seconds=self._lease_seconds)
        except BaseException:
            run.abandon()
            raise
        self._runs[record.id] = run
        task = asyncio.create_task(self._run(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return record

    async def cancel(self, record: StoredResponse) -> StoredResponse:
        """Cancel a background response, wherever it runs; what is already over is returned as it is."""
        if record.response.status not in UNFINISHED:
            return record
        run = self._runs.get(record.id)
        if run is not None:
            run.cancel()
        else:
            await self._store.request_cancel(record.id)
        for _ in range(40):
            current = await self._store.get(record.id, owner=record.owner)
            if current is None or current.response.status not in UNFINISHED:
                return current or record
            await asyncio.sleep(0.05)
        # Nobody hears: its owner is gone, or hangs. The status is set from here; whoever comes later finds it taken.
        await self._end(record, None)
        return await self._store.get(record.id, owner=record.owner) or record

    async def _run(self, run: ResponseRun) -> None:
        response_id = run.response.id
        store = self._store
        logged = run.plan.stream

        async def write(events: Sequence[Event]) -> None:
            if logged:
                await store.append_events(
                    response_id,
                    [encode(event) for event in events],
                    last=isinstance(events[-1], TERMINAL),
                )

        try:
            await run.run(write)
        except StoreUnavailable:
            # The lease runs out, and whoever sees the store again first ends the response.
            logger.exception("background response %s lost its store", response_id)
        finally:
            self._runs.pop(response_id, None)
            await asyncio.shield(self._release(response_id))

    async def _release(self, response_id: str) -> None:
        try:
            await self._store.release(self._holder, response_id)
        except StoreUnavailable:
            logger.warning("the lease of %s could not be released; it runs out", response_id)

    async def _renew(self) -> None:
        if self._runs:
            await self._store.lease(self._holder, list(self._runs), seconds=self._lease_seconds)

    async def _hear_cancellations(self) -> None:
        async for response_id in self._store.cancel_requests():
            run = self._runs.get(response_id)
            if run is not None:
                run.cancel()

    async def _find_orphans(self) -> None:
        orphans = await self._store.take_orphans(self._holder, seconds=self._lease_seconds)
        for record in orphans:
            if record.id in self._runs:
                continue  # ours, and late: it is renewed by the taking
            logger.warning("response %s lost its owner", record.id)
            error = OwnerLost("The process that ran this response ended before it was complete.")
            await self._end(record, error)
            await self._store.release(self._holder, record.id)

    async def _end(self, record: StoredResponse, error: GatewayError | None) -> None:
        """Give a response that nobody runs its terminal state: failed with `error`, or cancelled."""
        logged: list[bytes] = []
        if record.streamed:
            count = await self._store.count_events(record.id)
            if count:
                async for batch in self._store.read_events(record.id):
                    logged += batch
                    if len(logged) >= count:
                        break
        response = snapshot(record.response)
        response.status = "cancelled" if error is None else "failed"
        if error is not None:
            response.error = ResponseError(code=error.code or "server_error", message=error.message)
        closing, response.output = closing_events(logged, response)
        ended = msgspec.structs.replace(record, response=response)
        if await self._store.advance(ended, expected=UNFINISHED) and record.streamed:
            await self._store.append_events(record.id, closing, last=True)

    async def _again_and_again(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Do `work` every so often; a store that is away is waited for."""
        while True:
            try:
                await work()
            except StoreUnavailable as error:
                logger.warning("the store does not answer: %s", error.message)
            await asyncio.sleep(seconds)
