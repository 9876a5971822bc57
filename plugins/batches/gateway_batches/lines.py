"""Lines of batches in the database. A line that has a result keeps it: there is never a second one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.sdk.wire import encode, new_id
from gateway_batches.batches import BatchJob, add_errors, leased_status
from gateway_batches.objects import BatchError, LineError, LineResult
from gateway_batches.reading import BadLine, RequestLine

PENDING: Final = 0
COMPLETED: Final = 1
FAILED: Final = 2
State = Literal[1, 2]

_AT_ONCE: Final = 1000
"""Lines that one transaction changes."""
_BLOCK_BYTES: Final = 1_048_576
"""Bytes of results that are read at once, or more if one result has more."""


class PendingLine(Struct, frozen=True, kw_only=True):
    """A line without a result."""

    number: int
    custom_id: str
    body: bytes


class TokenCounts(Struct, frozen=True, kw_only=True):
    """The tokens that a line has used."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


def clear(connection: sqlite3.Connection, job: BatchJob) -> int:
    """Forget some lines of a batch whose file is about to be read. Returns how many. Raises `LeaseLost`."""
    leased_status(connection, job)
    cleared = connection.execute(
        "DELETE FROM lines WHERE seq IN (SELECT seq FROM lines WHERE batch = ? LIMIT ?)",
        (job.number, _AT_ONCE),
    ).rowcount
    connection.execute(
        "UPDATE batches SET total = 0, completed = 0, failed = 0, errors = '[]' WHERE seq = ?",
        (job.number,),
    )
    return cleared


def add(
    connection: sqlite3.Connection, job: BatchJob, lines: Sequence[RequestLine | BadLine]
) -> int:
    """Store lines of the file. Bad ones, and those whose `custom_id` an earlier one has, fail at once. Returns how many lines the
    batch has now. Raises `LeaseLost`."""
    leased_status(connection, job)
    bad: list[BadLine] = []
    for line in lines:
        if isinstance(line, RequestLine):
            added = connection.execute(
                "INSERT OR IGNORE INTO lines (batch, number, custom_id, body, state) VALUES (?, ?, ?, ?, ?)",
                (job.number, line.number, line.custom_id, line.body, PENDING),
            ).rowcount
            if added:
                continue
            line = _duplicate(line)
        bad.append(line)
        result = LineResult(
            id=new_id("batch_req_"),
            custom_id=line.custom_id,
            response=None,
            error=LineError(code=line.error.code, message=line.error.message, line=line.number),
        )
        connection.execute(
            "INSERT INTO lines (batch, number, state, result) VALUES (?, ?, ?, ?)",
            (job.number, line.number, FAILED, encode(result)),
        )
    if bad:
        add_errors(connection, job, [each.error for each in bad])
    row = connection.execute(
        "UPDATE batches SET total = total + ?, failed = failed + ? WHERE seq = ? RETURNING total",
        (len(lines), len(bad), job.number),
    ).fetchone()
    total: int = row["total"]
    return total


def pending(connection: sqlite3.Connection, job: BatchJob, *, after: int) -> PendingLine | None:
    """The next line without a result, after the one with the number `after`. Raises `LeaseLost`."""
    leased_status(connection, job)
    row = connection.execute(
        "SELECT number, custom_id, body FROM lines WHERE batch = ? AND state = 0 AND number > ? ORDER BY number LIMIT 1",
        (job.number, after),
    ).fetchone()
    if row is None:
        return None
    return PendingLine(number=row["number"], custom_id=row["custom_id"], body=row["body"])


def store(
    connection: sqlite3.Connection,
    job: BatchJob,
    number: int,
    result: bytes,
    state: State,
    used: TokenCounts,
) -> int:
    """Store the result of a line, unless it has one. Returns the size of all results. Raises `LeaseLost`."""
    leased_status(connection, job)
    stored = connection.execute(
        "UPDATE lines SET state = ?, result = ?, body = NULL WHERE batch = ? AND number = ? AND state = 0",
        (state, result, job.number, number),
    ).rowcount
    if not stored:
        row = connection.execute(
            "SELECT output_bytes FROM batches WHERE seq = ?", (job.number,)
        ).fetchone()
        return int(row["output_bytes"])
    done = (1, 0) if state == COMPLETED else (0, 1)
    row = connection.execute(
        "UPDATE batches SET completed = completed + ?, failed = failed + ?, output_bytes = output_bytes + ?, "
        "input_tokens = input_tokens + ?, cached_tokens = cached_tokens + ?, output_tokens = output_tokens + ?, "
        "reasoning_tokens = reasoning_tokens + ? WHERE seq = ? RETURNING output_bytes",
        (*done, len(result), used.input, used.cached, used.output, used.reasoning, job.number),
    ).fetchone()
    size: int = row["output_bytes"]
    return size


def fail_pending(connection: sqlite3.Connection, job: BatchJob, error: LineError) -> int:
    """Let some lines without a result fail with `error`. Returns how many. Raises `LeaseLost`."""
    leased_status(connection, job)
    rows = connection.execute(
        "SELECT seq, custom_id FROM lines WHERE batch = ? AND state = 0 ORDER BY number LIMIT ?",
        (job.number, _AT_ONCE),
    ).fetchall()
    connection.executemany(
        "UPDATE lines SET state = ?, result = ?, body = NULL WHERE seq = ?",
        [
            (
                FAILED,
                encode(
                    LineResult(
                        id=new_id("batch_req_"),
                        custom_id=row["custom_id"],
                        response=None,
                        error=error,
                    )
                ),
                row["seq"],
            )
            for row in rows
        ],
    )
    connection.execute(
        "UPDATE batches SET failed = failed + ? WHERE seq = ?", (len(rows), job.number)
    )
    return len(rows)


def results(
    connection: sqlite3.Connection, job: BatchJob, state: State, *, after: int
) -> tuple[bytes, int]:
    """Some results of one state in the order of the lines, one a line, behind the line with the number `after`.

    Returns them and the number of their last line; nothing at the end. Raises `LeaseLost`.
    """
    leased_status(connection, job)
    block = bytearray()
    for row in connection.execute(
        "SELECT number, result FROM lines WHERE batch = ? AND state = ? AND number > ? ORDER BY number",
        (job.number, state, after),
    ):
        block += row["result"]
        block += b"\n"
        after = row["number"]
        if len(block) >= _BLOCK_BYTES:
            break
    return bytes(block), after


def _duplicate(line: RequestLine) -> BadLine:
    error = BatchError(
        code="duplicate_custom_id",
        message="An earlier line has the same custom_id.",
        line=line.number,
        param="custom_id",
    )
    return BadLine(number=line.number, custom_id=line.custom_id, error=error)
