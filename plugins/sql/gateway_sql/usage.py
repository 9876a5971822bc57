"""Counters of usage; see `gateway.sdk.UsageCounters`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from gateway.sdk import UsageCount, UsageWidth
from gateway.sdk.stores import BUCKETS_KEPT, WIDTH_SECONDS
from gateway_sql.statements import Operation, Statement, key

_TABLES: Final[dict[UsageWidth, tuple[str, str]]] = {
    "1m": ("usage_minutes", "minute"),
    "1h": ("usage_hours", "hour"),
    "1d": ("usage_counts", "day"),
}
"""The table for each width, and the column of the bucket in it."""
_MARGIN: Final = 10
"""Number of buckets that are kept in addition to those that must be kept."""
_BATCHES_KEPT: Final = 7200.0
"""Seconds for which the id of a batch is kept."""
_MAX_ADDED: Final = 1 << 40
"""Largest number that one batch adds, so that no sum exceeds the database's integers."""


def add(batch: str, counts: Sequence[UsageCount], now: float) -> Operation[None]:
    """Add `counts`, unless the batch was added before."""
    new = yield Statement(
        "INSERT INTO usage_batches (batch, at) VALUES ($1, $2) ON CONFLICT (batch) DO NOTHING RETURNING at",
        (key(batch), now),
    )
    if not new:
        return
    for width, (table, column) in _TABLES.items():
        rows = [
            (each.bucket, *_names(each), *_bounded(each)) for each in counts if each.width == width
        ]
        if not rows:
            continue
        yield Statement(
            f"INSERT INTO {table} ({column}, subject, names, requests, input, cached, output, reasoning) "  # our own names
            f"VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT ({column}, subject) DO UPDATE "
            f"SET requests = {table}.requests + excluded.requests, input = {table}.input + excluded.input, "
            f"cached = {table}.cached + excluded.cached, output = {table}.output + excluded.output, "
            f"reasoning = {table}.reasoning + excluded.reasoning",
            # In the same order in all processes, so that no two of them wait for each other.
            sorted(rows),
            each=True,
        )


def read(first: int, last: int, width: UsageWidth) -> Operation[list[UsageCount]]:
    """The sums of the buckets from `first` to `last`, both included."""
    table, column = _TABLES[width]
    rows = yield Statement(
        f"SELECT {column}, names, requests, input, cached, output, reasoning FROM {table} "  # our own names
        f"WHERE {column} >= $1 AND {column} <= $2",
        (first, last),
    )
    return [_count(width, *row) for row in rows]


def forget(now: float) -> Operation[None]:
    """Delete buckets that need not be kept, and the ids of batches that will not be sent again."""
    yield Statement("DELETE FROM usage_batches WHERE at < $1", (now - _BATCHES_KEPT,))
    for width, (table, column) in _TABLES.items():
        yield Statement(
            f"DELETE FROM {table} WHERE {column} < $1", (_oldest(width, now),)
        )  # our own names


def any_old(now: float) -> Operation[bool]:
    """Whether `forget` would delete something."""
    old = ["EXISTS (SELECT 1 FROM usage_batches WHERE at < $1)"]
    for number, (table, column) in enumerate(_TABLES.values(), 2):
        old.append(f"EXISTS (SELECT 1 FROM {table} WHERE {column} < ${number})")  # our own names
    rows = yield Statement(
        f"SELECT 1 WHERE {' OR '.join(old)}",  # our own names
        (now - _BATCHES_KEPT, *(_oldest(width, now) for width in _TABLES)),
    )
    return bool(rows)


def _oldest(width: UsageWidth, now: float) -> int:
    return int(now // WIDTH_SECONDS[width]) - BUCKETS_KEPT[width] - _MARGIN


def _names(count: UsageCount) -> tuple[str, str]:
    """API, principal and model, as a key and as JSON. The escapes of JSON represent characters that databases refuse,
    such as NUL."""
    text = json.dumps([count.api, count.principal, count.model])
    return key(text), text


def _bounded(count: UsageCount) -> tuple[int, ...]:
    numbers = (
        count.requests,
        count.input_tokens,
        count.cached_tokens,
        count.output_tokens,
        count.reasoning_tokens,
    )
    return tuple(max(0, min(number, _MAX_ADDED)) for number in numbers)


def _count(
    width: UsageWidth,
    bucket: int,
    names: str,
    requests: int,
    input_: int,
    cached: int,
    output: int,
    reasoning: int,
) -> UsageCount:
    """The count in a row of a table."""
    api, principal, model = json.loads(names)
    return UsageCount(
        width=width,
        bucket=bucket,
        api=api,
        principal=principal,
        model=model,
        requests=requests,
        input_tokens=input_,
        cached_tokens=cached,
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
