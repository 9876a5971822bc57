"""Background responses. Each runs like a foreground response, but in a task of its own that does not depend on a
client.

Each response has a lease in the store, and each process renews all of its leases together. If a process dies, the
others find its responses (`gateway/answers/responses/orphans.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import msgspec

from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.live_log import LiveLog
from gateway.answers.responses.log_writer import LogWriter
from gateway.answers.responses.orphans import Orphans
from gateway.base.errors import GatewayError, RateLimited, StoreUnavailable
from gateway.observe.request_context import background_context
from gateway.observe.request_log import log_request
from gateway.plugins.protocols import UNFINISHED, ConversationBounds, ResponseStore, StoredResponse
from gateway.wire.events import Event
from gateway.wire.ids import new_id

logger = logging.getLogger("gateway.answers.responses.background")


CANCEL_SECONDS = 2.0
"""Time in seconds within which the running process must react to a cancellation."""

HAND_OVER_SECONDS = 5.0
"""Maximum time in seconds, when the process stops, for storing the responses that are handed over."""

_NOW = 0.001
"""Duration in seconds of a lease that ends immediately, so that another process takes over the response."""


class _Running(msgspec.Struct, frozen=True, eq=False):
    """A run and its task."""

    run: ResponseAnswer
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
        recreate_run: Callable[[StoredResponse], Awaitable[ResponseAnswer]] | None = None,
        conversation_bounds: Callable[[], ConversationBounds | None] = lambda: None,
    ) -> None:
        """`lease_seconds`: maximum time from the death of a process until another one ends its responses. `max_bytes`:
        limit per owner on the total size of requests that are queued or running here. `recreate_run` prepares a new run
        for a response whose process died, if such responses are run again. `conversation_bounds` returns the limits of
        conversations, for responses whose process died while it stored their end."""
        self._store = store
        self._max_bytes = max_bytes
        # A lease and a scan for expired leases must together fit into `lease_seconds`.
        self._lease_seconds = lease_seconds * 0.6
        self._search_seconds = lease_seconds * 0.3
        self._renewals: set[asyncio.Task[None]] = set()
        self._holder = new_id("proc_")
        self._running: dict[str, _Running] = {}
        self._stopping = False
        self._handing: set[asyncio.Task[None]] = set()
        """Tasks of responses that are being handed over."""
        self._starting: list[ResponseAnswer] = []
        """Responses whose record is being stored."""
        self._writers: dict[str, LogWriter] = {}
        self._orphans = Orphans(
            store,
            self._holder,
            lease_seconds=self._lease_seconds,
            stall_seconds=self._search_seconds + self._lease_seconds / 3,
            owned=self._running,
            start=self._begin,
            recreate_run=recreate_run,
            conversation_bounds=conversation_bounds,
        )

    @property
    def queued(self) -> int:
        """Number of responses of this process that wait in a queue."""
        return sum(each.run.output.response.status == "queued" for each in self._running.values())

    @property
    def running(self) -> int:
        """Number of responses that this process runs."""
        return len(self._running) - self.queued

    @property
    def followers(self) -> int:
        """Number of clients that receive events of this process's responses directly from memory."""
        return sum(each.live.followers for each in self._running.values())

    @property
    def lag(self) -> int:
        """Number of events that exist but are not known to be stored yet."""
        return sum(writer.behind for writer in self._writers.values())

    @asynccontextmanager
    async def maintenance(self) -> AsyncIterator[None]:
        """Within the context, renew leases, process cancellation requests, and search for orphaned responses."""
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
            if self._handing:
                await asyncio.wait(self._handing, timeout=HAND_OVER_SECONDS)
            running = [each.task for each in self._running.values()]
            tasks = [*watchers, *self._renewals, *running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start(self, run: ResponseAnswer) -> StoredResponse:
        """Store a prepared response as queued, and run it independently of its client. Returns the stored record.

        Raises `RateLimited` if the requests of the owner's queued and running responses are too large together, or if
        the store limits their number. The store never evicts such responses.
        """
        run.output.response.status = "queued"
        record = run.output.record()
        try:
            self._check_room(run)
            self._starting.append(run)
            # Take the lease first, so that a stored response always has an owner or an expiring lease.
            began = time.monotonic()
            await self._store.lease(self._holder, [record.id], seconds=self._lease_seconds)
            await self._store.put(record)
            if time.monotonic() - began >= self._lease_seconds:
                # This process was suspended. Others may have dropped the lease, because the response was not stored yet.
                await self._store.lease(self._holder, [record.id], seconds=self._lease_seconds)
        except BaseException:
            run.scope.abandon()
            raise
        finally:
            self._starting = [each for each in self._starting if each is not run]
        self._begin(run)
        return record

    def _check_room(self, run: ResponseAnswer) -> None:
        runs = [*self._starting, *(running.run for running in self._running.values())]
        plans = [each.output.plan for each in runs]
        held = sum(plan.settings.size for plan in plans if plan.owner == run.output.plan.owner)
        if (
            self._max_bytes is not None
            and held
            and held + run.output.plan.settings.size > self._max_bytes
        ):
            raise RateLimited(
                f"Your background responses that wait or run have requests of {held} bytes; with this one it would be more "
                f"than this server's limit of {self._max_bytes}. Wait until some have ended, or cancel some."
            )

    def _begin(self, run: ResponseAnswer, stored: int = 0) -> None:
        live = LiveLog()
        task = asyncio.create_task(self._run(run, live, stored))
        self._running[run.output.response.id] = _Running(run, task, live)

    def live(self, response_id: str) -> LiveLog | None:
        """Return the live log of a streamed response that this process runs; None for other responses."""
        running = self._running.get(response_id)
        return running.live if running is not None and running.run.output.plan.stream else None

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
        if not await self._orphans.end(record, "cancelled"):
            current = await self._store.get(record.id, owner=record.owner)
            if current is not None and current.response.status in UNFINISHED:
                await self._orphans.end(current, "cancelled")  # it changed after it was read
        if running is not None:
            running.live.end()
        return await self._store.get(record.id, owner=record.owner) or record

    async def _run(self, run: ResponseAnswer, live: LiveLog, stored: int) -> None:
        """Run a response to its end. If everything was stored, the lease is released. Otherwise it expires, and another
        process ends the response."""
        response_id = run.output.response.id
        context = background_context(run.scope.stats, new_id("req_"), run.scope.context)
        context.enter()
        try:
            if run.output.plan.stream:
                writer = self._writers[response_id] = LogWriter(self._store, run, live, stored)
                run.output.storage.count_events = lambda: writer.made
                if end := await run.run(writer.write):
                    await writer.write(end)
            else:
                await run.run(_drop)
            if run.output.handed_over:
                handing = asyncio.current_task()
                assert handing is not None
                self._handing.add(handing)
                handing.add_done_callback(self._handing.discard)
                await self._hand_over(run)
            else:
                await self._store.release(self._holder, response_id)
        except StoreUnavailable as error:
            logger.warning(
                "background response %s (%s): the store is unavailable: %s If its end is not stored, another process ends it.",
                response_id, run.output.response.status, error.message,
            )  # fmt: skip
        except Exception:
            # This task is not awaited, so exceptions must be logged here.
            logger.exception("background response %s broke", response_id)
        finally:
            self._running.pop(response_id, None)
            self._writers.pop(response_id, None)
            live.end()
            context.end_span()
            log_request(context, line=run.services.config.server.access_log)

    def stop(self, error: GatewayError) -> None:
        """Prepare for the end of the process: take over no more responses, and hand over the queued ones.

        Other processes, or this one's successor, run these immediately. Running responses, and queued ones whose
        request is not kept, continue here.
        """
        self._stopping = True
        if self._store.lasting:
            for each in tuple(self._running.values()):
                if (
                    each.run.output.response.status == "queued"
                    and each.run.output.plan.kept_body is not None
                ):
                    each.run.scope.stop(error)

    async def _find_orphans(self) -> None:
        if not self._stopping:
            await self._orphans.find()

    async def _hand_over(self, run: ResponseAnswer) -> None:
        """Store a response that another process is to run as queued, with its request, and end its lease."""
        self._running.pop(run.output.response.id, None)  # stop renewing its lease
        record = run.output.storage.queued_again(run.output.plan)
        before = record.attempt - 1
        if await self._store.advance(record, expected=UNFINISHED, attempt=before):
            logger.info("response %s is handed over: it is run again", record.id)
            await self._store.lease(self._holder, [record.id], seconds=_NOW)

    async def _renew(self) -> None:
        """Renew all leases. An attempt that hangs, for example because of its connection, continues while the next one
        starts."""
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

    async def _run_repeatedly(
        self, work: Callable[[], Awaitable[None]], seconds: float, *, again: float | None = None
    ) -> None:
        """Call `work` repeatedly, at the interval `seconds`; `again` is the interval after a failure. Continues if the
        store is unavailable."""
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
    """Retrieve the exception of an attempt that is no longer awaited. It was reported as a timeout before."""
    if not attempt.cancelled():
        attempt.exception()


async def _drop(events: Sequence[Event]) -> None:
    """Drop events: the sink of background responses that are not streamed, which have no log."""
