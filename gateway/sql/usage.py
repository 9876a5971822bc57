"""Counters of usage; see `gateway.protocols.UsageCounters`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from gateway.limit_table import DAY
from gateway.protocols import UsageCount
from gateway.sql.statements import Operation, Statement, key
from gateway.usage_table import DAYS_KEPT, Key, counts_of, key_of, numbers_of

_DAYS_KEPT: Final = DAYS_KEPT + 10
_BATCHES_KEPT: Final = 7200.0
"""Seconds for which the id of a batch is known."""
_MOST_ADDED: Final = 1 << 40
"""Largest number that one batch adds, so that no sum exceeds the database's integers."""


def add(batch: str, counts: Sequence[UsageCount], now: float) -> Operation[None]:
    """Add `counts`, unless the batch was added before."""
    new = yield Statement(
        "INSERT INTO usage_batches (batch, at) VALUES ($1, $2) ON CONFLICT (batch) DO NOTHING RETURNING at",
        (key(batch), now),
    )
    if not new:
        return
    rows = [(each.day, *_names(key_of(each)), *_bounded(each)) for each in counts]
    yield Statement(
        "INSERT INTO usage_counts (day, subject, names, requests, input, cached, output, reasoning) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (day, subject) DO UPDATE "
        "SET requests = usage_counts.requests + excluded.requests, input = usage_counts.input + excluded.input, "
        "cached = usage_counts.cached + excluded.cached, output = usage_counts.output + excluded.output, "
        "reasoning = usage_counts.reasoning + excluded.reasoning",
        # In the same order in all processes: none waits for one that waits for it.
        sorted(rows),
        each=True,
    )


def read(first_day: int, last_day: int) -> Operation[list[UsageCount]]:
    """The sums of these days."""
    rows = yield Statement(
        "SELECT day, names, requests, input, cached, output, reasoning FROM usage_counts "
        "WHERE day >= $1 AND day <= $2",
        (first_day, last_day),
    )
    return counts_of(
        ((day, *json.loads(names)), (requests, given, cached, made, reasoning))
        for day, names, requests, given, cached, made, reasoning in rows
    )


def forget(now: float) -> Operation[None]:
    """Delete days that need not be kept, and the ids of batches that are not sent again."""
    yield Statement("DELETE FROM usage_batches WHERE at < $1", (now - _BATCHES_KEPT,))
    yield Statement("DELETE FROM usage_counts WHERE day < $1", (_oldest_day(now),))


def any_old(now: float) -> Operation[bool]:
    """Whether `forget` would delete something."""
    rows = yield Statement(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM usage_batches WHERE at < $1) "
        "OR EXISTS (SELECT 1 FROM usage_counts WHERE day < $2)",
        (now - _BATCHES_KEPT, _oldest_day(now)),
    )
    return bool(rows)


def _oldest_day(now: float) -> int:
    return int(now // DAY) - _DAYS_KEPT


def _names(of: Key) -> tuple[str, str]:
    """API, principal and model, as a key and as they are. JSON's escapes keep what databases refuse, such as NUL."""
    _, *names = of
    text = json.dumps(names)
    return key(text), text


def _bounded(count: UsageCount) -> tuple[int, ...]:
    return tuple(max(0, min(number, _MOST_ADDED)) for number in numbers_of(count))
