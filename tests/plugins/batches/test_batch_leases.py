"""Whoever has lost the lease of a batch can write no more, and a stored result stays."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.sdk import Delegation
from gateway_batches import batches, lines
from gateway_batches.database import Database
from gateway_batches.objects import BatchError, LineError
from gateway_batches.reading import RequestLine
from gateway_batches.requests import CreateBatch

ERROR = LineError(code="batch_failed", message="It failed.")
REQUEST = CreateBatch(input_file_id="file-1", endpoint="/v1/responses", completion_window="24h")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path)
    yield made
    made.close()


def made(database: Database, owner: str = "ada") -> batches.Job:
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


def claimed(database: Database, seconds: float = 0) -> batches.Job:
    job = database.now(lambda c: batches.claim(c, only_ending=False, seconds=seconds))
    assert job is not None
    return job


def store(job: batches.Job, result: bytes) -> Callable[[sqlite3.Connection], int]:
    used = lines.TokenCounts(input=1)
    return lambda c: lines.store(c, job, 1, result, lines.COMPLETED, used)


WRITERS: dict[str, Callable[[sqlite3.Connection, batches.Job], Any]] = {
    "clear": lines.clear,
    "add": lambda c, job: lines.add(c, job, []),
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
def test_nothing_is_written_with_a_lost_lease(database: Database, name: str) -> None:
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


def test_a_lost_lease_cannot_be_renewed_or_released(database: Database) -> None:
    late = made(database)
    claimed(database, seconds=60)
    for seconds in (600.0, 0.0):
        database.now(lambda c, seconds=seconds: batches.renew(c, [late], seconds=seconds))  # type: ignore[misc]
        assert database.now(lambda c: batches.claimable(c, only_ending=False)) is None


def test_a_line_keeps_its_first_result(database: Database) -> None:
    job = made(database)
    database.now(store(job, b"first"))
    again = claimed(database)
    line = database.now(lambda c: lines.pending(c, again, after=0))
    assert line is not None
    assert line.number == 2, "the other one is done"
    database.now(store(again, b"second"))
    assert database.now(lambda c: lines.fail_pending(c, again, ERROR)) == 1
    content = BytesIO()
    assert database.now(lambda c: lines.write_results(c, again, lines.COMPLETED, content)) == 1
    assert content.getvalue() == b"first\n"
    shown = database.now(lambda c: batches.shown(batches.find(c, "ada", job.id)))
    assert (shown.request_counts.completed, shown.request_counts.failed) == (1, 1)
    assert shown.usage.input_tokens == 1


def test_a_cancellation_wins_over_a_later_end(database: Database) -> None:
    job = made(database)
    database.now(lambda c: batches.request_cancel(c, "ada", job.id))
    assert database.now(lambda c: batches.begin_ending(c, job, "completed", None)) == "cancelled"
    # What was decided stays.
    assert database.now(lambda c: batches.begin_ending(c, job, "expired", None)) == "cancelled"


def test_owners_with_fewer_running_batches_come_first(database: Database) -> None:
    delegation = Delegation(principal=None)
    for owner in ("ada", "ada", "ada", "bob"):
        database.now(
            lambda c, owner=owner: batches.insert(  # type: ignore[misc]
                c, owner, delegation, REQUEST, None, seconds=60, max_active=9
            )
        )
    assert [claimed(database, seconds=60).owner for _ in range(4)] == ["ada", "bob", "ada", "ada"]
