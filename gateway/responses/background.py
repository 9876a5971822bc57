"""Background responses: the same run as in the foreground, as a task of this process that needs no client.

Each has a lease in the store, and one heartbeat renews all leases. If a process dies, another finds its responses by
their expired leases and ends each with one terminal status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Literal

import msgspec

from gateway.errors import GatewayError, RateLimited, StoreUnavailable
from gateway.protocols import UNFINISHED, ConversationBounds, ResponseStore, StoredResponse
from gateway.request_log import log_request
from gateway.request_stats import background_request
from gateway.responses.ending import completed_ending
from gateway.responses.live_log import LiveLog
from gateway.responses.log_writer import LogWriter
from gateway.responses.recovery import closing_events
from gateway.responses.run import ResponseRun
from gateway.responses.work import OPENING
from gateway.stall_watch import StallWatch
from gateway.wire.events import Event
from gateway.wire.ids import new_id
from gateway.wire.response import ResponseError, snapshot

logger = logging.getLogger("gateway.responses.background")


CANCEL_SECONDS = 2.0
"""Seconds that the running process has to react to a cancellation."""

ORPHANS_AT_ONCE = 100

MOST_ATTEMPTS = 3
"""Maximum number of attempts for a response whose owner died while it ran, since the response may be the cause."""

OWNER_LOST = "owner_lost"
_OWNER_LOST_MESSAGE = (
    "The process that ran this response ended before it was complete (owner_lost)."
)


class _Running(msgspec.Struct, frozen=True, eq=False):
    """A run and its task."""

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
        max_bytes: int | None = None,
        recreate_run: Callable[[StoredResponse], Awaitable[ResponseRun]] | None = None,
        conversation_bounds: Callable[[], ConversationBounds | None] = lambda: None,
    ) -> None:
        """`lease_seconds`: maximum time after an owner's death until another process ends its responses. `max_bytes`:
        limit per owner on the requests that are queued or running here. `recreate_run` prepares a new run for a
        response whose owner has died, if such responses are run again. `conversation_bounds` returns the limits of a
        conversation that a response is added to whose owner died as it ended."""
        self._store = store
        self._recreate_run = recreate_run
        self._conversation_bounds = conversation_bounds
        self._max_bytes = max_bytes
        # One lease and one scan for expired leases must fit into the time.
        self._lease_seconds = lease_seconds * 0.6
        self._search_seconds = lease_seconds * 0.3
        self._others_may_renew = False
        """Whether leases may have expired because their owners, which are alive, could not renew them."""
        self._watch = StallWatch()
        self._renewals: set[asyncio.Task[None]] = set()
        self._holder = new_id("proc_")
        self._running: dict[str, _Running] = {}
        self._writers: dict[str, LogWriter] = {}

    @property
    def queued(self) -> int:
        """Number of responses of this process that wait for the engine."""
        return sum(each.run.response.status == "queued" for each in self._running.values())

    @property
    def running(self) -> int:
        """Number of responses that this process runs."""
        return len(self._running) - self.queued

    @property
    def followers(self) -> int:
        """Number of clients that follow the responses of this process from memory."""
        return sum(each.live.followers for each in self._running.values())

    @property
    def lag(self) -> int:
        """Number of events that are made and not yet known to be stored."""
        return sum(writer.behind for writer in self._writers.values())

    @asynccontextmanager
    async def maintenance(self) -> AsyncIterator[None]:
        """While entered: renew leases, process cancellation requests, and search for orphaned responses."""
        watchers = [
            asyncio.create_task(
                self._run_repeatedly(
                    self._renew, self._lease_seconds / 3, again=self._lease_seconds / 30
                )
            ),
            asyncio.create_task(self._run_repeatedly(self._find_orphans, self._search_seconds)),
            asyncio.create_task(self._run_repeatedly(self._process_cancellations, 0.2)),
        ]
        try:
            yield
        finally:
            running = [each.task for each in self._running.values()]
            tasks = [*watchers, *self._renewals, *running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start(self, run: ResponseRun) -> StoredResponse:
        """Store a prepared run as queued and run it independently of its client. Returns the stored record.

        Raises `RateLimited` if the owner has too many queued or running responses, which a store never evicts.
        """
        run.response.status = "queued"
        record = run.record()
        try:
            self._check_room(run)
            # Take the lease first, so that a stored response always has an owner or an expiring lease.
            await self._store.lease(self._holder, [record.id], seconds=self._lease_seconds)
            await self._store.put(record)
        except BaseException:
            run.scope.abandon()
            raise
        self._begin(run)
        return record

    def _check_room(self, run: ResponseRun) -> None:
        plans = [running.run.plan for running in self._running.values()]
        held = sum(plan.settings.size for plan in plans if plan.owner == run.plan.owner)
        if self._max_bytes is not None and held and held + run.plan.settings.size > self._max_bytes:
            raise RateLimited(
                f"Your background responses that wait or run have requests of {held} bytes; with this one it would be more "
                f"than this server's limit of {self._max_bytes}. Wait until some have ended, or cancel some."
            )

    def _begin(self, run: ResponseRun, *, stored: int = 0) -> None:
        live = LiveLog()
        task = asyncio.create_task(self._run(run, live, stored))
        self._running[run.response.id] = _Running(run, task, live)

    def live(self, response_id: str) -> LiveLog | None:
        """The live log of a streamed response that this process runs."""
        running = self._running.get(response_id)
        return running.live if running is not None and running.run.plan.stream else None

    async def cancel(self, record: StoredResponse) -> StoredResponse:
        """Cancel a background response, whichever process runs it. A finished response is returned unchanged."""
        if record.response.status not in UNFINISHED:
            return record
        running = self._running.get(record.id)
        if running is not None:
            running.run.scope.cancel()
            await asyncio.wait((running.task,), timeout=CANCEL_SECONDS)
        else:
            await self._store.request_cancel(record.id)
        for _ in range(int(CANCEL_SECONDS / 0.05)):
            current = await self._store.get(record.id, owner=record.owner)
            if current is None or current.response.status not in UNFINISHED:
                return current or record
            record = current
            await asyncio.sleep(0.05)
        # No reaction: the owner is dead or hangs. Set the status here; a later attempt to set it fails.
        if not await self._end(record, "cancelled"):
            current = await self._store.get(record.id, owner=record.owner)
            if current is not None and current.response.status in UNFINISHED:
                await self._end(current, "cancelled")  # it had begun since it was read
        if running is not None:
            running.live.end()
        return await self._store.get(record.id, owner=record.owner) or record

    async def _run(self, run: ResponseRun, live: LiveLog, stored: int) -> None:
        """Run to the end. The lease is released if everything was stored; otherwise it expires, and another process
        ends the response."""
        response_id = run.response.id
        stats = background_request(run.scope.stats, new_id("req_"), run.plan.owner)
        stats.enter()
        try:
            if run.plan.stream:
                writer = self._writers[response_id] = LogWriter(self._store, run, live, stored)
                await run.run_framed(writer.write)
            else:
                await run.run(_drop)
            await self._store.release(self._holder, response_id)
        except StoreUnavailable as error:
            logger.warning(
                "background response %s: the store is unavailable: %s", response_id, error.message
            )
        except Exception:
            # This task is not awaited, so exceptions must be logged here.
            logger.exception("background response %s broke", response_id)
        finally:
            del self._running[response_id]
            self._writers.pop(response_id, None)
            live.end()
            stats.end_span()
            log_request(stats, line=run.services.config.server.access_log)

    async def _renew(self) -> None:
        """Renew all leases. An attempt that hangs (one connection of several) goes on beside the next one, which may overtake it."""
        if not self._running:
            return
        attempt = asyncio.create_task(self._renew_once())
        self._renewals.add(attempt)
        attempt.add_done_callback(self._renewals.discard)
        done, _ = await asyncio.wait((attempt,), timeout=self._lease_seconds / 3)
        if not done:
            attempt.add_done_callback(_ignore)
            raise StoreUnavailable(
                "The leases of background responses were not renewed in time. It is tried again."
            )
        await attempt

    async def _renew_once(self) -> None:
        try:
            async with asyncio.timeout(self._lease_seconds):
                await self._store.lease(
                    self._holder, list(self._running), seconds=self._lease_seconds
                )
        except TimeoutError:
            raise StoreUnavailable("The store does not answer.") from None

    async def _process_cancellations(self) -> None:
        async with aclosing(self._store.cancel_requests()) as requests:
            async for response_id in requests:
                running = self._running.get(response_id)
                if running is not None:
                    running.run.scope.cancel()

    async def _find_orphans(self) -> None:
        # If this process was stopped, others may have been with it, and a store on this machine has the same clock.
        self._others_may_renew |= self._watch.stalled(
            self._search_seconds + self._lease_seconds / 3
        )
        if self._others_may_renew:
            # Leases have expired while nobody could renew them: owners that are alive do so first.
            await self._store.health()
            await asyncio.sleep(self._lease_seconds)
            self._others_may_renew = False
        try:
            await self._take_orphans()
        finally:
            self._watch.look()

    async def _take_orphans(self) -> None:
        while True:
            try:
                taken = await self._store.take_orphans(
                    self._holder, seconds=self._lease_seconds, limit=ORPHANS_AT_ONCE
                )
            except StoreUnavailable:
                self._others_may_renew = True
                raise
            for record in taken:
                if record.id in self._running:
                    continue  # our own lease expired; taking over renewed it
                logger.warning("response %s lost its owner", record.id)
                try:
                    if await self._run_again(record):
                        continue
                    # Otherwise another process continues it. The lease is left to expire, in case that process dies too.
                    if await self._end(record, "failed"):
                        await self._store.release(self._holder, record.id)
                except StoreUnavailable:
                    raise
                except Exception:
                    # A record that cannot be read must not block the others.
                    logger.exception("response %s cannot be ended", record.id)
            if len(taken) < ORPHANS_AT_ONCE:
                return

    async def _run_again(self, record: StoredResponse) -> bool:
        """Run an orphaned response again if no output of it was visible and this is configured. False: it must be
        ended.

        Its owner may be slow instead of dead. Once the new attempt is stored, the store rejects the owner's writes.
        """
        began = record.response.status == "in_progress"
        if self._recreate_run is None or record.request is None:
            return False
        if record.response.status not in UNFINISHED or await self._stored_events(record) > OPENING:
            return False
        if began and record.attempt >= MOST_ATTEMPTS - 1:
            logger.warning("response %s has lost its owner too often", record.id)
            return False
        try:
            run = await self._recreate_run(record)
        except RateLimited:
            return True  # retried when the new lease expires
        except StoreUnavailable:
            raise
        except GatewayError as error:
            logger.warning("response %s cannot be run again: %s", record.id, error.message)
            return False
        if began and run.plan.toolset.bound_tools:
            run.scope.abandon()  # its tools may have been called
            return False
        run.storage.attempt = record.attempt + 1
        run.response.status = "queued"
        claimed = run.record()
        try:
            # Compare-and-set: an owner that is slow, not dead, may have started it since and called tools.
            mine = await self._store.advance(
                claimed, expected={record.response.status}, attempt=record.attempt
            )
            stored = await self._stored_events(record) if mine else 0
        except BaseException:
            run.scope.abandon()
            raise
        if not mine or stored > OPENING:
            run.scope.abandon()
            # The owner wrote while it was taken over.
            if mine and await self._end(claimed, "failed"):
                await self._store.release(self._holder, record.id)
            # Otherwise the lease is left to expire: if the owner dies after all, the response is found again.
            return True
        logger.info("response %s is run here", record.id)
        self._begin(run, stored=stored)
        return True

    async def _stored_events(self, record: StoredResponse) -> int:
        return await self._store.count_events(record.id) if record.streamed else 0

    async def _end(self, record: StoredResponse, status: Literal["failed", "cancelled"]) -> bool:
        """End a response without an owner: set its terminal status and complete its log, as far as they are missing.
        One whose owner died as it ended gets the end that it was to have. False: the response has changed meanwhile.

        Its status and its output become visible at once. Before, it gets another attempt: from then on the store rejects
        writes of an owner that is slow instead of dead, and the log does not change. Crash-safe: each step can be
        resumed by another process.
        """
        closing: list[bytes] | None = None
        if record.response.status in UNFINISHED:
            if record.streamed:
                fenced = msgspec.structs.replace(record, attempt=record.attempt + 1)
                if not await self._store.advance(
                    fenced, expected=(record.response.status,), attempt=record.attempt
                ):
                    return False
                record = fenced
            if record.ending is not None:
                bounds = self._conversation_bounds()
                record = await completed_ending(self._store, record, bounds)
            else:
                response = snapshot(record.response)
                response.status = status
                if status == "failed":
                    response.error = ResponseError(code=OWNER_LOST, message=_OWNER_LOST_MESSAGE)
                record = msgspec.structs.replace(record, response=response, request=None)
            if record.streamed:
                closing, final = closing_events(await self._log(record.id), record.response)
                record = msgspec.structs.replace(record, response=final)
            if not await self._store.advance(record, expected=UNFINISHED):
                return False
        if not record.streamed:
            return True
        if closing is None:  # who has ended it died before its log was complete
            closing, final = closing_events(await self._log(record.id), record.response)
            if final.output != record.response.output:
                ended = msgspec.structs.replace(record, response=final)
                await self._store.advance(ended, expected=(final.status,))
        await self._store.append_events(record.id, closing, last=True, attempt=record.attempt)
        return True

    async def _log(self, response_id: str) -> list[bytes]:
        """The events that are stored now."""
        logged: list[bytes] = []
        count = await self._store.count_events(response_id)
        if count:
            async with aclosing(self._store.read_events(response_id)) as log:
                async for batch in log:
                    logged += batch
                    if len(logged) >= count:
                        break
        return logged

    async def _run_repeatedly(
        self, work: Callable[[], Awaitable[None]], seconds: float, *, again: float | None = None
    ) -> None:
        """Call `work` repeatedly, at the interval `seconds`; `again` is the interval after a failure. Continues if the store is
        unavailable."""
        away = False
        while True:
            pause = seconds if again is None else again
            try:
                await work()
                away, pause = False, seconds
            except StoreUnavailable as error:
                if not away:
                    logger.warning("%s", error.message)
                away = True
            except Exception:
                # The watcher must keep running: without it leases are not renewed and orphans are not found.
                logger.exception("a watcher of background responses failed; it continues")
            await asyncio.sleep(pause)


def _ignore(attempt: asyncio.Task[None]) -> None:
    """Of an attempt that nobody waits for: its error was reported as one that took too long."""
    if not attempt.cancelled():
        attempt.exception()


async def _drop(events: Sequence[Event]) -> None:
    """The sink of a background response that is not streamed: it has no log."""
