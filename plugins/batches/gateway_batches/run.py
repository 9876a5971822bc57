"""One batch while this process runs it: reading its file, running its lines, writing its results."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from gateway.sdk import NotFound, PermissionDenied
from gateway.sdk.files import UploadedFiles
from gateway_batches import batches, lines
from gateway_batches.calls import Draining, LineCalls, LineOutcome
from gateway_batches.config import BatchesConfig
from gateway_batches.database import BatchDatabase
from gateway_batches.objects import BatchError, Ending, LineError
from gateway_batches.reading import LineReader, RequestLine

T = TypeVar("T")

_UNDONE: Final = {
    "expired": LineError(
        code="batch_expired",
        message="This request could not be executed before the completion window expired.",
    ),
    "cancelled": LineError(
        code="batch_cancelled",
        message="This request was not executed, because the batch was cancelled.",
    ),
    "failed": LineError(
        code="batch_failed",
        message="This request was not executed, because the batch failed.",
    ),
}
"""The errors of lines that have no result when the batch ends."""


class _Stopped(Exception):
    """The batch is to end before all lines have a result."""


class BatchRun:
    """Runs one leased batch. Raises `LeaseLost` from `run` if another process has taken it over."""

    def __init__(
        self,
        job: batches.BatchJob,
        database: BatchDatabase,
        files: UploadedFiles,
        config: BatchesConfig,
        calls: LineCalls,
    ) -> None:
        self.job = job
        self._database = database
        self._files = files
        self._config = config
        self._calls = calls
        self._ending: Ending | None = job.ending
        self._error: BatchError | None = None
        self._stopped = asyncio.Event()
        self._taking = asyncio.Lock()
        self._taken = 0
        """The number of the line that was taken last."""
        self.drained = False
        """Whether the server shuts down, so that the batch was left as it is."""

    def stop(self, ending: Ending, error: BatchError | None = None) -> None:
        """End the batch; lines that run are cancelled. The first call decides the ending, unless an earlier attempt
        of the batch has decided it: then `error` is used only if the endings are the same."""
        if not self._stopped.is_set():
            if self._ending in (None, ending):
                self._ending, self._error = ending, error
            self._stopped.set()

    async def run(self) -> None:
        """End the batch if it was leased to be ended. Otherwise run its lines, or until the server shuts down, and release it, to
        be ended. Cancelling leaves it as it is.

        Raises `LeaseLost` and `StoreUnavailable`.
        """
        job = self.job
        if job.ends:
            self.stop("cancelled" if job.status == "cancelling" else "expired")
            await self._end()
            return
        if self._ending is None:
            try:
                if job.delegation is None:
                    raise self._failed(
                        "invalid_delegation",
                        "The API key that made the batch cannot be read from what is stored. Create the batch again.",
                    )
                if job.status == "validating":
                    await self._read()
                await self._until_stopped()
            except _Stopped:
                pass
        if not self.drained:
            await self._write(self._release_to_end)

    def _release_to_end(self, connection: sqlite3.Connection) -> None:
        batches.begin_ending(connection, self.job, self._ending or "completed", self._error)
        batches.renew(connection, [self.job], seconds=0)

    async def _clear(self) -> None:
        while await self._write(lambda connection: lines.clear(connection, self.job)) > 0:
            pass

    async def _read(self) -> None:
        """Read the file. Raises `_Stopped` if there is nothing to run."""
        job = self.job
        await self._clear()
        try:
            async with self._files.copied(job.owner, job.input_file_id) as (_, content):
                content.seek(0)
                reader = LineReader(
                    content, endpoint=job.endpoint, max_line_bytes=self._config.max_line_bytes
                )
                total, models, usable = await self._add_lines(reader)
        except NotFound as error:
            raise self._failed("file_not_found", error.message) from error
        if not total:
            raise self._failed("empty_file", "The file has no lines.")
        if not usable:
            raise self._failed("no_valid_lines", "None of the lines can be sent.")
        model = next(iter(models)) if len(models) == 1 else None
        await self._write(lambda connection: batches.begin(connection, job, model=model))

    async def _add_lines(self, reader: LineReader) -> tuple[int, set[str | None], bool]:
        """Store all lines. Returns how many there are, up to two models that they name, and whether any can be sent."""
        job, most = self.job, self._config.max_lines
        total, usable = 0, False
        models: set[str | None] = set()
        while read := await asyncio.to_thread(reader.read):
            if self._stopped.is_set():
                raise _Stopped
            if total + len(read) > most:
                await self._clear()
                raise self._failed(
                    "too_many_lines",
                    f"The file has more than {most} lines, this server's limit. Make several batches of it.",
                )
            total = await self._write(partial(lines.add, job=job, lines=read))
            for line in read:
                if isinstance(line, RequestLine):
                    usable = True
                    if len(models) < 2:
                        models.add(line.model)
        return total, models, usable

    def _failed(self, code: str, message: str) -> _Stopped:
        self.stop("failed", BatchError(code=code, message=message))
        return _Stopped()

    async def _until_stopped(self) -> None:
        """Run all lines, or those that end before `stop` is called."""
        running = asyncio.create_task(self._run_lines())
        stopping = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            running.cancel()  # has no effect if it is done
            await asyncio.wait((running, stopping))
        if not running.cancelled():
            running.result()

    async def _run_lines(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._config.concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        """Run lines, one after the other, until none is left."""
        job = self.job
        while not self.drained and (line := await self._take()) is not None:
            try:
                outcome = await self._calls.run(job, line)
            except Draining:
                self.drained = True
                return
            except PermissionDenied as error:
                self.stop(
                    "failed",
                    BatchError(code=error.code or "permission_denied", message=error.message),
                )
                return
            size = await self._store(line, outcome)
            if size > self._config.max_output_bytes:
                most = self._config.max_output_bytes
                self._failed(
                    "output_too_large",
                    f"The results have more than {most} bytes, this server's limit. Make several batches of the file.",
                )
                return

    async def _store(self, line: lines.PendingLine, outcome: LineOutcome) -> int:
        """Store the result of a line, even if this task is cancelled meanwhile. Returns the size of all results."""
        job = self.job
        storing = asyncio.create_task(
            self._write(
                lambda connection: lines.store(
                    connection, job, line.number, outcome.result, outcome.state, outcome.used
                )
            )
        )
        try:
            return await asyncio.shield(storing)
        except asyncio.CancelledError:
            await asyncio.wait((storing,))
            raise

    async def _take(self) -> lines.PendingLine | None:
        async with self._taking:
            line = await self._database.read(
                lambda connection: lines.pending(connection, self.job, after=self._taken)
            )
            if line is not None:
                self._taken = line.number
            return line

    async def _end(self) -> None:
        """Write the files of results, and end the batch."""
        job = self.job
        wanted: Ending = self._ending or "completed"
        ending = await self._write(
            lambda connection: batches.begin_ending(connection, job, wanted, self._error)
        )
        error = _UNDONE.get(ending)
        if error is not None:
            while await self._write(lambda c: lines.fail_pending(c, job, error)) > 0:
                pass
        await self._write_file(lines.COMPLETED, job.output_id, "output")
        await self._write_file(lines.FAILED, job.error_id, "error")
        await self._write(lambda connection: batches.end(connection, job, ending))

    async def _write_file(self, state: lines.State, file_id: str, kind: str) -> None:
        """Store the results of one state as a file. Does nothing if there are none, or if an earlier attempt did it."""
        job = self.job
        if await self._files.find(job.owner, [file_id]):
            return
        written = 0
        async with self._files.growing() as file:
            while True:
                block, written = await self._database.read(
                    partial(lines.results, job=job, state=state, after=written)
                )
                if not block:
                    break
                await file.append(block)
            if written:
                await file.finish(
                    job.owner,
                    file_id,
                    filename=f"{job.id}_{kind}.jsonl",
                    purpose="batch_output",
                    seconds=job.output_seconds,
                )

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._database.write(work)
