"""Whoever has lost the lease of a batch can write no more, and a stored result stays."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from gateway.sdk import Delegation
from gateway.sdk.files import FilesDatabase, UploadedFiles
from gateway.storage.files.uploaded import FILE_TABLES
from gateway_batches import batches, lines
from gateway_batches.calls import LineCalls
from gateway_batches.config import BatchesConfig
from gateway_batches.database import BatchDatabase
from gateway_batches.objects import BatchError, Ending, LineError
from gateway_batches.reading import RequestLine
from gateway_batches.requests import CreateBatch
from gateway_batches.run import BatchRun
from gateway_batches.runner import Runner

ERROR = LineError(code="batch_failed", message="It failed.")
REQUEST = CreateBatch(input_file_id="file-1", endpoint="/v1/responses", completion_window="24h")


class FilesLimits(msgspec.Struct, frozen=True):
    max_file_bytes: int = 1000
    max_total_bytes: int = 10_000
    max_files: int = 9


@pytest.fixture
def database(tmp_path: Path) -> Iterator[BatchDatabase]:
    made = BatchDatabase(tmp_path)
    yield made
    made.close()


def made(database: BatchDatabase, owner: str = "ada") -> batches.BatchJob:
    """A new batch with two lines, leased for no time at all."""
    delegation = Delegation(principal=None)
    database.now(
        lambda c: batches.insert(c, owner, delegation, REQUEST, None, seconds=60, max_active=9)
    )
    job = claimed(database)
    read = [
        RequestLine(number=n, custom_id=f"r{n}", model=None, body=b'{"input":"x"}') for n in (1, 2)
    ]
    database.now(lambda c: lines.add(c, job, read))
    database.now(lambda c: batches.begin(c, job, model=None))
    return msgspec.structs.replace(job, status="in_progress")


def claimed(database: BatchDatabase, seconds: float = 0) -> batches.BatchJob:
    job = database.now(lambda c: batches.claim(c, ending=False, seconds=seconds))
    assert job is not None
    return job


class Running:
    """A batch that runs, as far as its runner looks at it."""

    def __init__(self, job: batches.BatchJob) -> None:
        self.job = job

    def stop(self, ending: Ending, error: BatchError | None = None) -> None: ...


def store(job: batches.BatchJob, result: bytes) -> Callable[[sqlite3.Connection], int]:
    used = lines.TokenCounts(input=1)
    return lambda c: lines.store(c, job, 1, result, lines.COMPLETED, used)


WRITERS: dict[str, Callable[[sqlite3.Connection, batches.BatchJob], Any]] = {
    "clear": lines.clear,
    "add": lambda c, job: lines.add(c, job, []),
    "results": lambda c, job: lines.results(c, job, lines.COMPLETED, after=0),
    "pending": lambda c, job: lines.pending(c, job, after=0),
    "store": lambda c, job: store(job, b"late")(c),
    "fail_pending": lambda c, job: lines.fail_pending(c, job, ERROR),
    "begin": lambda c, job: batches.begin(c, job, model=None),
    "begin_ending": lambda c, job: batches.begin_ending(
        c, job, "failed", BatchError(code="c", message="m")
    ),
    "end": lambda c, job: batches.end(c, job, "completed"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_with_a_lost_lease(database: BatchDatabase, name: str) -> None:
    late = made(database)
    current = claimed(database)
    assert current.fence > late.fence
    before = database.now(lambda c: [tuple(r) for r in c.execute("SELECT * FROM batches")])
    with pytest.raises(batches.LeaseLost):
        database.now(lambda c: WRITERS[name](c, late))
    assert before == database.now(lambda c: [tuple(r) for r in c.execute("SELECT * FROM batches")])
    line = database.now(lambda c: lines.pending(c, current, after=0))
    assert line is not None
    assert line.number == 1


def test_a_lost_lease_cannot_be_renewed_or_released(database: BatchDatabase) -> None:
    late = made(database)
    claimed(database, seconds=60)
    for seconds in (600.0, 0.0):
        database.now(lambda c, seconds=seconds: batches.renew(c, [late], seconds=seconds))  # type: ignore[misc]
        assert database.now(lambda c: batches.claimable(c, ending=False)) is None


def test_a_renewal_that_comes_late_does_not_hold_what_was_released_or_has_ended(
    database: BatchDatabase,
) -> None:
    made(database)
    job = claimed(database, seconds=60)
    database.now(lambda c: batches.renew(c, [job], seconds=60))
    assert database.now(lambda c: batches.claimable(c, ending=False)) is None
    database.now(lambda c: batches.begin_ending(c, job, "completed", None))
    database.now(lambda c: batches.renew(c, [job], seconds=0))
    database.now(lambda c: batches.renew(c, [job], seconds=60))
    ends = database.now(lambda c: batches.claim(c, ending=True, seconds=60))
    assert ends is not None
    database.now(lambda c: batches.end(c, ends, "completed"))
    database.now(lambda c: batches.renew(c, [ends], seconds=60))
    [leased] = database.now(lambda c: c.execute("SELECT leased_until FROM batches").fetchone())
    assert leased == 0


def test_a_line_keeps_its_first_result(database: BatchDatabase) -> None:
    job = made(database)
    database.now(store(job, b"first"))
    again = claimed(database)
    line = database.now(lambda c: lines.pending(c, again, after=0))
    assert line is not None
    assert line.number == 2, "the other one is done"
    database.now(store(again, b"second"))
    assert database.now(lambda c: lines.fail_pending(c, again, ERROR)) == 1
    stored = database.now(lambda c: lines.results(c, again, lines.COMPLETED, after=0))
    assert stored == (b"first\n", 1)
    assert database.now(lambda c: lines.results(c, again, lines.COMPLETED, after=1)) == (b"", 1)
    shown = database.now(lambda c: batches.batch_object(batches.find(c, "ada", job.id)))
    assert (shown.request_counts.completed, shown.request_counts.failed) == (1, 1)
    assert shown.usage.input_tokens == 1


def test_a_cancellation_wins_over_a_later_end(database: BatchDatabase) -> None:
    job = made(database)
    database.now(lambda c: batches.request_cancel(c, "ada", job.id))
    assert database.now(lambda c: batches.begin_ending(c, job, "completed", None)) == "cancelled"
    # What was decided stays.
    assert database.now(lambda c: batches.begin_ending(c, job, "expired", None)) == "cancelled"


def test_the_error_of_another_end_is_not_shown(database: BatchDatabase) -> None:
    error = BatchError(code="server_error", message="It broke.")
    for cancelled in (True, False):
        job = made(database, owner=f"{cancelled}")
        if cancelled:
            database.now(lambda c, job=job: batches.request_cancel(c, job.owner, job.id))  # type: ignore[misc]
        ending = database.now(lambda c, job=job: batches.begin_ending(c, job, "failed", error))  # type: ignore[misc]
        shown = database.now(
            lambda c, job=job: batches.batch_object(batches.find(c, job.owner, job.id))
        )  # type: ignore[misc]
        assert (ending, shown.errors is None) == ("cancelled" if cancelled else "failed", cancelled)
        database.now(lambda c, job=job, ending=ending: batches.end(c, job, ending))  # type: ignore[misc]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("decided", ["completed", "cancelled", "expired", None])
async def test_a_batch_whose_end_was_decided_before_it_broke_shows_no_error(
    database: BatchDatabase, tmp_path: Path, decided: Ending | None
) -> None:
    """Its last attempt to end is one to let it fail, where it was not decided yet."""
    job = made(database)
    if decided is None:
        database.now(lambda c: batches.request_cancel(c, "ada", job.id))
    else:
        database.now(lambda c: batches.begin_ending(c, job, decided, None))
    ends = database.now(lambda c: batches.claim(c, ending=True, seconds=60))
    assert ends is not None
    tables = FilesDatabase(tmp_path / "f.sqlite3", (FILE_TABLES,), name="Files", setting="x")
    files = UploadedFiles(tables, FilesLimits())
    run = BatchRun(ends, database, files, BatchesConfig(), cast("LineCalls", None))
    run.stop("failed", BatchError(code="server_error", message="It broke."))
    try:
        await run.run()
    finally:
        tables.close()
    shown = database.now(lambda c: batches.batch_object(batches.find(c, "ada", job.id)))
    assert (shown.status, shown.errors) == (decided or "cancelled", None)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_a_process_runs_is_not_run_anew_when_its_machine_was_suspended(
    database: BatchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(database)
    job = claimed(database, seconds=60)
    runner = Runner(database, cast("UploadedFiles", None), BatchesConfig())
    task = asyncio.create_task(asyncio.Event().wait())
    runner._runs[cast("asyncio.Task[None]", task)] = cast("BatchRun", Running(job))
    runner._renewed = asyncio.get_running_loop().time()
    known = time.time
    monkeypatch.setattr(time, "time", lambda: known() + 3600)
    await runner._look(cast("LineCalls", None))
    assert list(runner._runs) == [task]
    assert database.now(lambda c: batches.leased_status(c, job)) == "in_progress"
    task.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("seconds", [3600, -3600])
async def test_other_processes_renew_their_leases_before_a_batch_is_taken_where_the_clock_was_set(
    database: BatchDatabase, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    made(database)
    job = claimed(database, seconds=60)
    runner = Runner(database, cast("UploadedFiles", None), BatchesConfig())
    started: list[batches.BatchJob] = []
    monkeypatch.setattr(runner, "_start", lambda job, calls: started.append(job))
    known = time.time
    monkeypatch.setattr(time, "time", lambda: known() + seconds)
    await runner._look(cast("LineCalls", None))
    assert not started
    database.now(lambda c: batches.renew(c, [job], seconds=60))  # its owner looks
    runner._claims_from = 0.0  # the time of a lease has passed
    await runner._look(cast("LineCalls", None))
    assert not started
    database.now(lambda c: batches.renew(c, [job], seconds=0))
    await runner._look(cast("LineCalls", None))
    assert [each.id for each in started] == [job.id]


def test_owners_with_fewer_running_batches_come_first(database: BatchDatabase) -> None:
    delegation = Delegation(principal=None)
    for owner in ("ada", "ada", "ada", "bob"):
        database.now(
            lambda c, owner=owner: batches.insert(  # type: ignore[misc]
                c, owner, delegation, REQUEST, None, seconds=60, max_active=9
            )
        )
    assert [claimed(database, seconds=60).owner for _ in range(4)] == ["ada", "bob", "ada", "ada"]


def test_results_are_read_in_blocks_of_bounded_size(database: BatchDatabase) -> None:
    job = made(database)
    read = [RequestLine(number=n, custom_id=f"r{n}", model=None, body=b"{}") for n in range(3, 41)]
    database.now(lambda c: lines.add(c, job, read))
    for number in range(1, 41):
        result = f"{number}".encode() + b"x" * 100_000
        state = lines.FAILED if number % 4 == 0 else lines.COMPLETED
        database.now(
            lambda c, n=number, r=result, s=state: lines.store(c, job, n, r, s, lines.TokenCounts())  # type: ignore[misc]
        )
    content, after, sizes = b"", 0, []
    while True:
        block, after = database.now(
            lambda c, after=after: lines.results(c, job, lines.COMPLETED, after=after)  # type: ignore[misc]
        )
        if not block:
            break
        content += block
        sizes.append(len(block))
    assert max(sizes) < 1_300_000
    numbers = [int(each.rstrip(b"x")) for each in content.splitlines()]
    assert numbers == [n for n in range(1, 41) if n % 4]


def test_lines_are_forgotten_some_at_a_time(database: BatchDatabase) -> None:
    job = made(database)
    read = [
        RequestLine(number=n, custom_id=f"r{n}", model=None, body=b"{}") for n in range(3, 1502)
    ]
    database.now(lambda c: lines.add(c, job, read))
    assert [database.now(lambda c: lines.clear(c, job)) for _ in range(3)] == [1000, 501, 0]
