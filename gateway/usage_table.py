"""Counters of usage within one process; see `gateway.protocols.UsageCounters`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from gateway.protocols import UsageCount

Numbers: TypeAlias = tuple[int, int, int, int, int]
"""Requests, and tokens: input, cached, output, reasoning."""
Key: TypeAlias = tuple[int, str, str | None, str]
"""Day, API, principal, model."""

MOST_COUNTS = 200_000
"""Maximum number of sums in one process. Beyond it, the oldest days are forgotten."""
_MOST_BATCHES = 10_000
DAYS_KEPT = 400


class UsageTable:
    """Implements `UsageCounters` within one process."""

    def __init__(self) -> None:
        self._sums: dict[Key, Numbers] = {}
        self._batches: OrderedDict[str, None] = OrderedDict()

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        """See `UsageCounters.add_usage`."""
        if batch in self._batches:
            return
        self._batches[batch] = None
        if len(self._batches) > _MOST_BATCHES:
            self._batches.popitem(last=False)
        for each in counts:
            add(self._sums, key_of(each), numbers_of(each))
        self._forget(max((each.day for each in counts), default=0))

    async def read_usage(self, first_day: int, last_day: int) -> Sequence[UsageCount]:
        """See `UsageCounters.read_usage`."""
        return counts_of(
            (key, numbers) for key, numbers in self._sums.items() if first_day <= key[0] <= last_day
        )

    def _forget(self, today: int) -> None:
        oldest = min((day for day, *_ in self._sums), default=today) if self._sums else today
        while oldest < today - DAYS_KEPT or (len(self._sums) > MOST_COUNTS and oldest < today):
            for key in [key for key in self._sums if key[0] <= oldest]:
                del self._sums[key]
            oldest = min((day for day, *_ in self._sums), default=today)


def key_of(count: UsageCount) -> Key:
    return count.day, count.api, count.principal, count.model


def numbers_of(count: UsageCount) -> Numbers:
    return (
        count.requests,
        count.input_tokens,
        count.cached_tokens,
        count.output_tokens,
        count.reasoning_tokens,
    )


def add(sums: dict[Key, Numbers], key: Key, more: Numbers) -> None:
    """Add `more` to the sum of `key`."""
    held = sums.get(key)
    if held is None:
        sums[key] = more
    else:
        a, b, c, d, e = held
        sums[key] = (a + more[0], b + more[1], c + more[2], d + more[3], e + more[4])


def counts_of(sums: Iterable[tuple[Key, Numbers]]) -> list[UsageCount]:
    """Sums as `UsageCount`s."""
    return [
        UsageCount(
            day=day,
            api=api,
            principal=principal,
            model=model,
            requests=requests,
            input_tokens=given,
            cached_tokens=cached,
            output_tokens=made,
            reasoning_tokens=reasoning,
        )
        for (day, api, principal, model), (requests, given, cached, made, reasoning) in sums
    ]
