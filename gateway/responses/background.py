"""Background responses: the same run as a task of this process, which nobody has to wait for.

Each has a lease in the store, renewed by one heartbeat for all; where a process dies, another one finds its responses by
their run-out leases and gives each its one terminal state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Literal

import msgspec

from gateway.errors import GatewayError, RateLimited, StoreUnavailable
from gateway.protocols import UNFINISHED, ResponseStore, StoredResponse
from gateway.responses.live_log import LiveLog
from gateway.responses.log_writer import LogWriter
from gateway.responses.recovery import closing_events
from gateway.responses.run import ResponseRun
from gateway.wire.events import Event
from gateway.wire.ids import new_id
from gateway.wire.response import ResponseError, snapshot

logger = logging.getLogger("gateway.responses.background")


CANCEL_SECONDS = 2.0
"""How long whoever runs a response has to hear that it is cancelled."""

ORPHANS_AT_ONCE = 100

OPENING = 3
"""Events that say nothing of the output: created, queued, in progress. Every attempt tells them alike."""

MOST_ATTEMPTS = 3
"""How often a response is begun that was running when its owner died: it may be what kills them."""

OWNER_LOST = "owner_lost"
_OWNER_LOST_MESSAGE = (
    "The process that ran this response ended before it was complete (owner_lost)."
)


class _Running(msgspec.Struct, frozen=True, eq=False):
    """A run, and the task that it is."""

    run: ResponseRun
    task: asyncio.Task[None]
    live: LiveLog


class BackgroundRuns:
    """The background responses of one process."""

    def __init__(
        self,
        store: ResponseStore,
        *,
        lease_seconds: float,
        made_again: Callable[[StoredResponse], Awaitable[ResponseRun]] | None = None,
    ) -> None:
        """`lease_seconds`: how long after its owner's death a response is given its end by somebody else, at the latest.

        `made_again` prepares a run of a response whose owner has died, where such are run again.
        """
        self._store = store
        self._made_again = made_again
        # A lease and one search for those that ran out must fit.
        self._lease_seconds = lease_seconds * 0.6
        self._search_seconds = lease_seconds * 0.3
        self._holder = new_id("proc_")
        self._running: dict[str, _Running] = {}

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While inside: leases are renewed, requests to cancel are heard, orphans are found."""
        watchers = [
            asyncio.create_task(self._again_and_again(self._renew, self._lease_seconds / 3)),
            asyncio.create_task(self._again_and_again(self._find_orphans, self._search_seconds)),
            asyncio.create_task(self._again_and_again(self._hear_cancellations, 0.2)),
        ]
        try:
            yield
        finally:
            tasks = [*watchers, *(running.task for running in self._running.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start(self, run: ResponseRun) -> StoredResponse:
        """Store a prepared run as queued, and run it from now on without its client; what was stored."""
        run.response.status = "queued"
        record = run.record()
        try:
            # The lease first: whatever happens in between, what is stored has somebody who will look after it.
            await self._store.lease(self._holder, [record.id], seconds=self._lease_seconds)
            await self._store.put(record)
        except BaseException:
            run.abandon()
            raise
        self._begin(run)
        return record

    def _begin(self, run: ResponseRun, *, told: int = 0) -> None:
        live = LiveLog()
        task = asyncio.create_task(self._run(run, live, told))
        self._running[run.response.id] = _Running(run, task, live)

    def live(self, response_id: str) -> LiveLog | None:
        """The events of a response that is streamed and that this process runs, as they are stored."""
        running = self._running.get(response_id)
        return running.live if running is not None and running.run.plan.stream else None

    async def cancel(self, record: StoredResponse) -> StoredResponse:
        """Cancel a background response, wherever it runs; what is already over is returned as it is."""
        if record.response.status not in UNFINISHED:
            return record
        running = self._running.get(record.id)
        if running is not None:
            running.run.cancel()
            await asyncio.wait((running.task,), timeout=CANCEL_SECONDS)
        else:
            await self._store.request_cancel(record.id)
        for _ in range(int(CANCEL_SECONDS / 0.05)):
            current = await self._store.get(record.id, owner=record.owner)
            if current is None or current.response.status not in UNFINISHED:
                return current or record
            record = current
            await asyncio.sleep(0.05)
        # Nobody hears: its owner is gone, or hangs. The status is set from here; whoever comes later finds it taken.
        await self._end(record, "cancelled")
        if running is not None:
            running.live.end()
        return await self._store.get(record.id, owner=record.owner) or record

    async def _run(self, run: ResponseRun, live: LiveLog, told: int) -> None:
        """Run to the end. The lease is released where all is stored; else it runs out, and whoever sees the store first
        ends what is open.
        """
        response_id = run.response.id
        try:
            writer = LogWriter(self._store, run, live, told)
            await (run.run_framed(writer.write) if run.plan.stream else run.run(_drop))
            await self._store.release(self._holder, response_id)
        except StoreUnavailable as error:
            logger.warning("background response %s lost its store: %s", response_id, error.message)
        except Exception:
            # Nobody awaits this task: what is not told here is told nowhere.
            logger.exception("background response %s broke", response_id)
        finally:
            del self._running[response_id]
            live.end()

    async def _renew(self) -> None:
        if self._running:
            await self._store.lease(self._holder, list(self._running), seconds=self._lease_seconds)

    async def _hear_cancellations(self) -> None:
        async with aclosing(self._store.cancel_requests()) as requests:
            async for response_id in requests:
                running = self._running.get(response_id)
                if running is not None:
                    running.run.cancel()

    async def _find_orphans(self) -> None:
        while True:
            taken = await self._store.take_orphans(
                self._holder, seconds=self._lease_seconds, limit=ORPHANS_AT_ONCE
            )
            for record in taken:
                if record.id in self._running:
                    continue  # ours, and late: it is renewed by the taking
                logger.warning("response %s lost its owner", record.id)
                try:
                    if await self._run_again(record):
                        continue
                    await self._end(record, "failed")
                    await self._store.release(self._holder, record.id)
                except StoreUnavailable:
                    raise
                except Exception:
                    # One that cannot be read must not keep the others from their end.
                    logger.exception("response %s cannot be ended", record.id)
            if len(taken) < ORPHANS_AT_ONCE:
                return

    async def _run_again(self, record: StoredResponse) -> bool:
        """Run an orphan of which nobody has seen any output, if that is wanted. False: it is to be ended.

        Its owner may be slow and not dead. With the new attempt, the store takes nothing more from it.
        """
        began = record.response.status == "in_progress"
        if self._made_again is None or record.request is None:
            return False
        if record.response.status not in UNFINISHED or await self._told(record) > OPENING:
            return False
        if began and record.attempt >= MOST_ATTEMPTS - 1:
            logger.warning("response %s has lost its owner too often", record.id)
            return False
        try:
            run = await self._made_again(record)
        except RateLimited:
            return True  # later, when its new lease has run out
        except StoreUnavailable:
            raise
        except GatewayError as error:
            logger.warning("response %s cannot be run again: %s", record.id, error.message)
            return False
        if began and run.plan.toolset.served:
            run.abandon()  # its tools may have been called
            return False
        run.attempt = record.attempt + 1
        run.response.status = "queued"
        claimed = run.record()
        try:
            mine = await self._store.advance(claimed, expected=UNFINISHED, attempt=record.attempt)
            told = await self._told(record) if mine else 0
        except BaseException:
            run.abandon()
            raise
        if not mine or told > OPENING:
            run.abandon()
            if mine:  # its owner has written while it was taken over
                await self._end(claimed, "failed")
            await self._store.release(self._holder, record.id)
            return True
        logger.info("response %s is run here", record.id)
        self._begin(run, told=told)
        return True

    async def _told(self, record: StoredResponse) -> int:
        return await self._store.count_events(record.id) if record.streamed else 0

    async def _end(self, record: StoredResponse, status: Literal["failed", "cancelled"]) -> None:
        """Give a response that nobody runs its terminal state and its log its end, as far as they lack it.

        The state comes first: from then on a store takes nothing more from an owner that is not dead but slow, and the
        log stands still. Whoever dies in between leaves what the next one can finish.
        """
        if record.response.status in UNFINISHED:
            response = snapshot(record.response)
            response.status = status
            if status == "failed":
                response.error = ResponseError(code=OWNER_LOST, message=_OWNER_LOST_MESSAGE)
            record = msgspec.structs.replace(record, response=response)
            if not await self._store.advance(record, expected=UNFINISHED):
                return
        if not record.streamed:
            return
        logged: list[bytes] = []
        count = await self._store.count_events(record.id)
        if count:
            async with aclosing(self._store.read_events(record.id)) as log:
                async for batch in log:
                    logged += batch
                    if len(logged) >= count:
                        break
        closing, final = closing_events(logged, record.response)
        if final.output != record.response.output:
            ended = msgspec.structs.replace(record, response=final)
            await self._store.advance(ended, expected=(final.status,))
        await self._store.append_events(record.id, closing, last=True, attempt=record.attempt)

    async def _again_and_again(self, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Do `work` every so often; a store that is away is waited for."""
        away = False
        while True:
            try:
                await work()
                away = False
            except StoreUnavailable as error:
                if not away:
                    logger.warning("%s", error.message)
                away = True
            except Exception:
                # Without its watchers, a process would let its responses go, and never find the others'.
                logger.exception("a watch over background responses broke; it goes on")
            await asyncio.sleep(seconds)


async def _drop(events: Sequence[Event]) -> None:
    """A background response that is not streamed has no log."""
