"""Runs the batches of this process, and takes over those that another one has left."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from gateway.sdk import GatewayServices, StoreUnavailable
from gateway.sdk.files import UploadedFiles
from gateway_batches import batches
from gateway_batches.calls import LineCalls
from gateway_batches.config import BatchesConfig
from gateway_batches.database import BatchDatabase
from gateway_batches.objects import BatchError, Status
from gateway_batches.run import BatchRun

logger = logging.getLogger("gateway.batches")

_LOOK_SECONDS: Final = 0.4
"""Interval between looks for cancellations by other processes, while batches run."""
_IDLE_SECONDS: Final = 1.0
"""Interval between looks for batches, while none runs."""
_ENDING: Final = 2
"""Number of batches that are ended concurrently: fewer than the databases have threads, so that requests find one."""
_SWEEP_SECONDS: Final = 60.0
_SWEEPS: Final = 10
"""Maximum number of deletions before the next look at what runs."""
_AGAIN_SECONDS: Final = 1.0
"""After which a batch is left to be continued if something could not be read or written; twice as long each time, and at most
`lease_seconds`."""
_SET_SECONDS: Final = 1.0
"""By how much two clocks differ more than before if one of them was set, or stood still."""
_DAY: Final = 86_400.0
_MAX_FAILURES: Final = 3
"""How often a batch is continued that breaks for an unknown reason."""
_MAX_FULL: Final = 20
"""How often a batch is continued for which the disk has no room, after `lease_seconds` each time."""
_NO_ROOM: Final = BatchError(
    code="server_error",
    message="The server has no room on its disk for the results of this batch. Create it again when there is, or ask the server's administrator.",
)
_BROKEN: Final = BatchError(
    code="server_error",
    message="The server could not run this batch because of an error of its own. Create it again, or ask the server's administrator.",
)


class Runner:
    """Leases batches and runs them. Whoever creates or cancels one calls `wake`."""

    def __init__(
        self, database: BatchDatabase, files: UploadedFiles, config: BatchesConfig
    ) -> None:
        self._database = database
        self._files = files
        self._config = config
        self._woken = asyncio.Event()
        self._services: asyncio.Future[GatewayServices] = asyncio.get_running_loop().create_future()
        self._runs: dict[asyncio.Task[None], BatchRun] = {}
        self._failures: dict[int, int] = {}
        """How often each batch has broken here, by its number."""
        self._full: dict[int, int] = {}
        """How often the disk had no room for each batch, by its number."""
        self._troubles: dict[int, int] = {}
        """How often in a row something could not be read or written for each batch, by its number."""
        self._left: list[tuple[float, batches.BatchJob]] = []
        """Batches that were left for that reason and are still leased, with the time at which they are released."""
        self._draining = False
        self._renewed = 0.0
        self._wall = self._ahead()
        """By how much the wall clock, of which leases are, was ahead of the loop's."""
        self._claims_from = 0.0
        """Time of the loop before which no batch is leased: the clock was set, and other processes renew their leases first."""
        self._swept = 0.0

    def use(self, services: GatewayServices) -> None:
        """Begin to run batches."""
        self._services.set_result(services)

    def wake(self) -> None:
        """Tell the runner that a batch was created, or is to be cancelled."""
        self._woken.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run batches until the context is left. Those that have not ended are left to other processes, or to the next start."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            runs = dict(self._runs)
            for each in runs:
                each.cancel()
            await asyncio.gather(task, *runs, return_exceptions=True)
            left = [job for _, job in self._left]
            await self._release([*(run.job for run in runs.values()), *left])

    async def _watch(self) -> None:
        calls = LineCalls(await self._services, self._config)
        while True:
            self._woken.clear()
            try:
                await self._look(calls)
            except StoreUnavailable as error:
                logger.warning("batches: %s", error.message)
            except Exception:
                # Without this task, no batch would be run any more.
                logger.exception("looking for batches failed; it continues")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS if self._runs else _IDLE_SECONDS):
                    await self._woken.wait()

    async def _look(self, calls: LineCalls) -> None:
        loop = asyncio.get_running_loop()
        lease = self._config.lease_seconds
        await self._release_left()
        was_ahead, self._wall = self._wall, self._ahead()
        # After a suspension, or where the clock was set, leases seem to have expired: what runs would be run anew.
        was_set = abs(self._wall - was_ahead) > _SET_SECONDS
        if was_set:
            self._claims_from = loop.time() + lease
        if self._runs:
            await self._check()
            if was_set or loop.time() >= self._renewed + lease / 3:
                held = [run.job for run in self._runs.values()]
                await self._database.write(lambda c: batches.renew(c, held, seconds=lease))
                self._renewed = loop.time()
        while loop.time() >= self._claims_from and (job := await self._claim()) is not None:
            self._start(job, calls)
        if loop.time() >= self._swept + _SWEEP_SECONDS:
            keep = self._config.keep_days * _DAY
            for _ in range(_SWEEPS):
                if not await self._database.write(lambda c: batches.sweep(c, keep_seconds=keep)):
                    self._swept = loop.time()
                    break

    @staticmethod
    def _ahead() -> float:
        return time.time() - asyncio.get_running_loop().time()

    async def _check(self) -> None:
        """Stop what is to end: what was cancelled, has expired or was taken over."""
        held = list(self._runs.items())

        def look(connection: sqlite3.Connection) -> list[Status | None]:
            return [_standing(connection, run.job) for _, run in held]

        now = time.time()
        for (task, run), status in zip(held, await self._database.read(look), strict=True):
            if status is None:
                task.cancel()
            elif status == "cancelling":
                run.stop("cancelled")
            elif now >= run.job.expires_at:
                run.stop("expired")

    async def _claim(self) -> batches.BatchJob | None:
        """Lease a batch if there is room for one to end or, apart from those, for one to run."""
        ending = sum(run.job.ends for run in self._runs.values())
        if ending < _ENDING and (job := await self._lease(ending=True)) is not None:
            return job
        if self._draining or len(self._runs) - ending >= self._config.running:
            return None
        return await self._lease(ending=False)

    async def _lease(self, *, ending: bool) -> batches.BatchJob | None:
        lease = self._config.lease_seconds
        found = await self._database.read(
            lambda c: batches.claimable(c, ending=ending, seconds=lease)
        )
        if found is None:
            return None
        return await self._database.write(lambda c: batches.claim(c, ending=ending, seconds=lease))

    def _start(self, job: batches.BatchJob, calls: LineCalls) -> None:
        run = BatchRun(job, self._database, self._files, self._config, calls)
        if self._failures.get(job.number, 0) >= _MAX_FAILURES:
            run.stop("failed", _BROKEN)
        elif self._full.get(job.number, 0) >= _MAX_FULL:
            run.stop("failed", _NO_ROOM)
        self._runs[asyncio.create_task(self._run(run))] = run

    async def _run(self, run: BatchRun) -> None:
        task = asyncio.current_task()
        assert task is not None, "it is run as a task"
        try:
            await run.run()
            self._failures.pop(run.job.number, None)
            self._troubles.pop(run.job.number, None)
            if run.job.ends:
                self._full.pop(run.job.number, None)
            if run.drained:
                self._draining = True
                await self._release([run.job])
        except* batches.LeaseLost:
            logger.info("the batch %s was taken over by another process", run.job.id)
        except* (StoreUnavailable, OSError) as group:
            logger.warning("the batch %s is continued later: %s", run.job.id, group.exceptions[0])
            if _is_full(group):
                await self._had_no_room(run.job)
            else:
                self._leave(run.job)
        except* Exception:
            await self._broke(run.job)
        finally:
            self._runs.pop(task, None)
            self.wake()

    def _leave(self, job: batches.BatchJob) -> None:
        """Something could not be read or written. The batch is continued, here or elsewhere, when that works again."""
        troubles = self._troubles[job.number] = self._troubles.get(job.number, 0) + 1
        # The lease expires by then in any case.
        seconds = min(_AGAIN_SECONDS * 2 ** min(troubles - 1, 30), self._config.lease_seconds)
        self._left.append((asyncio.get_running_loop().time() + seconds, job))

    async def _release_left(self) -> None:
        """Release the batches whose time has come. Raises `StoreUnavailable`: then they are released at the next look."""
        now = asyncio.get_running_loop().time()
        if due := [job for at, job in self._left if now >= at]:
            await self._database.write(lambda c: batches.renew(c, due, seconds=0))
            self._left = [each for each in self._left if each[0] > now]

    async def _had_no_room(self, job: batches.BatchJob) -> None:
        """The disk was full. The lease expires, and the batch is then continued, ended, or at last given up."""
        failures = self._full[job.number] = self._full.get(job.number, 0) + 1
        if failures > _MAX_FULL and job.ends:
            logger.error(
                "the batch %s cannot be ended: the disk is full; its results are lost", job.id
            )
            with suppress(StoreUnavailable):
                await self._database.write(lambda c: batches.fail_without_files(c, job, _NO_ROOM))
                del self._full[job.number]

    async def _broke(self, job: batches.BatchJob) -> None:
        """A run has failed for an unknown reason. The lease expires, and the batch is then continued here or elsewhere, or ended."""
        failures = self._failures[job.number] = self._failures.get(job.number, 0) + 1
        if failures <= _MAX_FAILURES:
            logger.exception("the batch %s failed unexpectedly; it is continued later", job.id)
            return
        logger.exception("the batch %s cannot be ended; its results are lost", job.id)
        with suppress(StoreUnavailable):
            await self._database.write(lambda c: batches.fail_without_files(c, job, _BROKEN))
            del self._failures[job.number]

    async def _release(self, held: list[batches.BatchJob]) -> None:
        if held:
            with suppress(StoreUnavailable):
                await self._database.write(lambda c: batches.renew(c, held, seconds=0))


def _is_full(error: BaseException) -> bool:
    """Whether it, or one of a group, comes from a full disk."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_full, error.exceptions))
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # Errors of Python's module itself have no code.
    return getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _standing(connection: sqlite3.Connection, job: batches.BatchJob) -> Status | None:
    """The status of a leased batch; None if it was taken over."""
    try:
        return batches.leased_status(connection, job)
    except batches.LeaseLost:
        return None
