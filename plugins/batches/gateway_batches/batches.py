"""Batches in the database: creating, showing, leasing and ending them."""

# ruff: noqa: S608 (statements are composed only of our own conditions; values are bound)

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from gateway.sdk import Conflict, Delegation, InvalidRequest, NotFound
from gateway.sdk.files import ListQuery, page
from gateway.sdk.wire import new_id
from gateway_batches.objects import (
    Batch,
    BatchError,
    BatchErrors,
    BatchUsage,
    Ending,
    InputTokensDetails,
    OutputTokensDetails,
    RequestCounts,
    Status,
)
from gateway_batches.requests import CreateBatch

MAX_ERRORS: Final = 100
"""Maximum number of errors that a batch shows. The errors file has all."""
_UNREADABLE: Final = BatchError(
    code="server_error",
    message="The errors of this batch cannot be read from what is stored. Ask the server's administrator.",
)
_SWEPT_AT_ONCE: Final = 1000
_SET_BACK: Final = 600.0
"""A lease that ends later than so many seconds from now, and ten times the time of a lease, was made before the clock was set back. A
process that lives renews its own within a second."""


class LeaseLost(Exception):
    """Another process has taken the batch over."""


class BatchJob(Struct, frozen=True, kw_only=True):
    """A batch that is leased to this process."""

    number: int
    id: str
    owner: str
    endpoint: str
    input_file_id: str
    delegation: Delegation | None
    """None if it cannot be read: it is damaged, or of a version of the server that this one does not know."""
    output_seconds: int | None
    output_id: str
    error_id: str
    status: Status
    ending: Ending | None
    expires_at: int
    fence: int
    ends: bool
    """Whether it was leased to be ended, not to be run."""


def no_batch(batch_id: str) -> NotFound:
    return NotFound(f"No batch found with id '{batch_id[:100]}'.", code="batch_not_found")


def insert(
    connection: sqlite3.Connection,
    owner: str,
    delegation: Delegation,
    request: CreateBatch,
    metadata: dict[str, str] | None,
    *,
    seconds: int,
    max_active: int,
) -> Batch:
    """Create a batch that expires after `seconds`. Raises `InvalidRequest` if the owner has too many."""
    [active] = connection.execute(
        "SELECT count(*) FROM batches WHERE owner = ? AND ended_at IS NULL", (owner,)
    ).fetchone()
    if active >= max_active:
        raise InvalidRequest(
            f"You have {active} batches that have not ended, this server's limit. Wait for them, or cancel some.",
            code="too_many_batches",
        )
    stored = msgspec.json.encode(delegation)
    msgspec.json.decode(
        stored, type=Delegation
    )  # an authenticator may have made what cannot be read again
    now = int(time.time())
    after = request.output_expires_after
    row = connection.execute(
        "INSERT INTO batches (id, owner, delegation, endpoint, input_file_id, completion_window, metadata, output_seconds, "
        "output_id, error_id, status, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'validating', ?, ?) RETURNING *",
        (
            new_id("batch_"), owner, stored, request.endpoint, request.input_file_id,
            request.completion_window, None if metadata is None else json.dumps(metadata),
            None if after is None else after.seconds, new_id("file-"), new_id("file-"), now, now + seconds,
        ),
    ).fetchone()  # fmt: skip
    return batch_object(row)


def find(connection: sqlite3.Connection, owner: str, batch_id: str) -> sqlite3.Row:
    """The row of a batch. Raises `NotFound`."""
    row: sqlite3.Row | None = connection.execute(
        "SELECT * FROM batches WHERE id = ? AND owner = ?", (batch_id, owner)
    ).fetchone()
    if row is None:
        raise no_batch(batch_id)
    return row


def listed(
    connection: sqlite3.Connection, owner: str, query: ListQuery
) -> tuple[list[Batch], bool]:
    """A page of an owner's batches, and whether there are more."""
    rows, more = page(
        connection, "batches", "owner = ?", (owner,), query, lambda each, _: find(connection, owner, each)
    )  # fmt: skip
    return [batch_object(row) for row in rows], more


def request_cancel(connection: sqlite3.Connection, owner: str, batch_id: str) -> Batch:
    """Ask for the end of a batch. Raises `NotFound`, and `Conflict` if it has ended or its files are being written."""
    row = find(connection, owner, batch_id)
    if row["status"] == "cancelling":
        return batch_object(row)
    if row["status"] not in ("validating", "in_progress"):
        raise Conflict(
            f"Cannot cancel a batch with status '{row['status']}'.", code="batch_not_cancellable"
        )
    changed: sqlite3.Row = connection.execute(
        "UPDATE batches SET status = 'cancelling', cancelling_at = ? WHERE seq = ? RETURNING *",
        (int(time.time()), row["seq"]),
    ).fetchone()
    return batch_object(changed)


def claimable(connection: sqlite3.Connection, *, ending: bool, seconds: float = 0.0) -> int | None:
    """The number of a batch that nobody holds and that is to end, or to run; None if there is none. Leases are for `seconds`.

    Those of owners with the fewest batches that are held come first.
    """
    now = time.time()
    row = connection.execute(
        "SELECT seq FROM batches AS free WHERE ended_at IS NULL AND (leased_until <= ? OR leased_until > ?) "
        "AND (status = 'cancelling' OR status = 'finalizing' OR expires_at <= ?) = ? "
        "ORDER BY (SELECT count(*) FROM batches AS held INDEXED BY active_batches WHERE held.owner = free.owner "
        "AND held.ended_at IS NULL AND held.leased_until > ?), seq LIMIT 1",
        (now, now + max(_SET_BACK, 10 * seconds), now, ending, now),
    ).fetchone()
    return None if row is None else row["seq"]


def claim(connection: sqlite3.Connection, *, ending: bool, seconds: float) -> BatchJob | None:
    """Lease a batch that nobody holds for `seconds`, to end it or to run it."""
    number = claimable(connection, ending=ending, seconds=seconds)
    if number is None:
        return None
    row = connection.execute(
        "UPDATE batches SET fence = fence + 1, leased_until = ? WHERE seq = ? RETURNING *",
        (time.time() + seconds, number),
    ).fetchone()
    return BatchJob(
        number=row["seq"],
        id=row["id"],
        owner=row["owner"],
        endpoint=row["endpoint"],
        input_file_id=row["input_file_id"],
        delegation=_delegation(row["delegation"]),
        output_seconds=row["output_seconds"],
        output_id=row["output_id"],
        error_id=row["error_id"],
        status=row["status"],
        ending=row["ending"],
        expires_at=row["expires_at"],
        fence=row["fence"],
        ends=ending,
    )


def _delegation(stored: object) -> Delegation | None:
    if not isinstance(stored, bytes):
        return None
    try:
        return msgspec.json.decode(stored, type=Delegation)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def renew(connection: sqlite3.Connection, held: Sequence[BatchJob], *, seconds: float) -> None:
    """Lease batches for `seconds` from now, if they have been neither taken over nor released. 0 releases them."""
    until = time.time() + seconds if seconds else 0
    still = " AND leased_until > 0 AND ended_at IS NULL" if seconds else ""
    connection.executemany(
        f"UPDATE batches SET leased_until = ? WHERE seq = ? AND fence = ?{still}",
        [(until, job.number, job.fence) for job in held],
    )


def leased_status(connection: sqlite3.Connection, job: BatchJob) -> Status:
    """The status of a leased batch. Raises `LeaseLost`."""
    row = connection.execute(
        "SELECT status FROM batches WHERE seq = ? AND fence = ?", (job.number, job.fence)
    ).fetchone()
    if row is None:
        raise LeaseLost
    status: Status = row["status"]
    return status


def begin(connection: sqlite3.Connection, job: BatchJob, *, model: str | None) -> None:
    """The file of a batch was read. Does nothing if the batch is to be cancelled. Raises `LeaseLost`."""
    if leased_status(connection, job) == "validating":
        connection.execute(
            "UPDATE batches SET status = 'in_progress', in_progress_at = ?, model = ? WHERE seq = ?",
            (int(time.time()), model, job.number),
        )


def begin_ending(
    connection: sqlite3.Connection, job: BatchJob, ending: Ending, error: BatchError | None
) -> Ending:
    """Decide how a batch ends; the first decision stays, and a cancellation that was asked for before it wins. `error`
    is shown if the batch ends as it says. Raises `LeaseLost`."""
    wanted = ending
    if leased_status(connection, job) == "cancelling":
        ending = "cancelled"
    row = connection.execute(
        "UPDATE batches SET ending = coalesce(ending, ?), finalizing_at = coalesce(finalizing_at, ?), "
        "status = CASE status WHEN 'cancelling' THEN status ELSE 'finalizing' END WHERE seq = ? RETURNING ending",
        (ending, int(time.time()), job.number),
    ).fetchone()
    decided: Ending = row["ending"]
    if error is not None and decided == wanted:
        add_errors(connection, job, [error])
    return decided


def add_errors(connection: sqlite3.Connection, job: BatchJob, errors: Sequence[BatchError]) -> None:
    """Show further errors of a batch, as far as there is room."""
    row = connection.execute("SELECT errors FROM batches WHERE seq = ?", (job.number,)).fetchone()
    known = _errors(row["errors"])
    # An error of the whole batch comes first: it must not be left out.
    whole = [each for each in errors if each.line is None and each not in known]
    lines = [each for each in errors if each.line is not None]
    kept = [*whole, *known, *lines][:MAX_ERRORS]
    if kept != known:
        connection.execute(
            "UPDATE batches SET errors = ? WHERE seq = ?",
            (msgspec.json.encode(kept).decode(), job.number),
        )


def end(connection: sqlite3.Connection, job: BatchJob, ending: Ending) -> None:
    """The files of a batch were written. Raises `LeaseLost`."""
    leased_status(connection, job)
    now = int(time.time())
    # OpenAI names the time after the status.
    connection.execute(
        f"UPDATE batches SET status = ?, {ending}_at = ?, ended_at = ?, leased_until = 0, "
        "output_file_id = CASE WHEN completed > 0 THEN output_id END, "
        "error_file_id = CASE WHEN failed > 0 THEN error_id END WHERE seq = ?",
        (ending, now, now, job.number),
    )


def fail_without_files(connection: sqlite3.Connection, job: BatchJob, error: BatchError) -> None:
    """Let a batch fail whose end fails, too: it has no files. Does nothing if another process has taken it over."""
    now = int(time.time())
    connection.execute(
        "UPDATE batches SET status = 'failed', ending = 'failed', failed_at = ?, ended_at = ?, leased_until = 0, errors = ? "
        "WHERE seq = ? AND fence = ?",
        (now, now, msgspec.json.encode([error]).decode(), job.number, job.fence),
    )


def sweep(connection: sqlite3.Connection, *, keep_seconds: float) -> int:
    """Delete some of what is no longer needed: lines of batches that have ended, and such batches. Returns how much it was."""
    lines = connection.execute(
        "DELETE FROM lines WHERE seq IN (SELECT lines.seq FROM batches JOIN lines ON lines.batch = batches.seq "
        "WHERE batches.ended_at IS NOT NULL LIMIT ?)",
        (_SWEPT_AT_ONCE,),
    ).rowcount
    if lines:
        return lines
    return connection.execute(
        "DELETE FROM batches WHERE seq IN (SELECT seq FROM batches WHERE ended_at <= ? LIMIT ?)",
        (time.time() - keep_seconds, _SWEPT_AT_ONCE),
    ).rowcount


def batch_object(row: sqlite3.Row) -> Batch:
    """A batch as clients see it."""
    errors = _errors(row["errors"])
    return Batch(
        id=row["id"],
        endpoint=row["endpoint"],
        model=row["model"],
        errors=BatchErrors(data=errors) if errors else None,
        input_file_id=row["input_file_id"],
        completion_window=row["completion_window"],
        status=row["status"],
        output_file_id=row["output_file_id"],
        error_file_id=row["error_file_id"],
        created_at=row["created_at"],
        in_progress_at=row["in_progress_at"],
        expires_at=row["expires_at"],
        finalizing_at=row["finalizing_at"],
        completed_at=row["completed_at"],
        failed_at=row["failed_at"],
        expired_at=row["expired_at"],
        cancelling_at=row["cancelling_at"],
        cancelled_at=row["cancelled_at"],
        request_counts=RequestCounts(
            total=row["total"], completed=row["completed"], failed=row["failed"]
        ),
        usage=BatchUsage(
            input_tokens=row["input_tokens"],
            input_tokens_details=InputTokensDetails(cached_tokens=row["cached_tokens"]),
            output_tokens=row["output_tokens"],
            output_tokens_details=OutputTokensDetails(reasoning_tokens=row["reasoning_tokens"]),
            total_tokens=row["input_tokens"] + row["output_tokens"],
        ),
        metadata=_metadata(row["metadata"]),
    )


def _errors(stored: object) -> list[BatchError]:
    """The errors that are stored; one that says so if they cannot be read."""
    try:
        return msgspec.json.decode(_encoded(stored), type=list[BatchError])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [_UNREADABLE]


def _metadata(stored: object) -> dict[str, str] | None:
    """The metadata that are stored; None if there are none that can be read."""
    if stored is None:
        return None
    try:
        return msgspec.json.decode(_encoded(stored), type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _encoded(stored: object) -> bytes:
    """What a column has, which a faulty disk may have changed in type too."""
    return stored if isinstance(stored, bytes) else str(stored).encode("utf-8", "replace")
