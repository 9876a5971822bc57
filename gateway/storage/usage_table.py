"""Counters of usage, in the memory of one process; see `gateway.plugins.protocols.UsageCounters`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from gateway.plugins.protocols import BUCKETS_KEPT, UsageCount, UsageWidth

Numbers: TypeAlias = tuple[int, int, int, int, int]
"""Number of requests, then numbers of tokens: input, cached, output, reasoning."""
Key: TypeAlias = tuple[int, str, str | None, str]
"""Bucket, API, principal, model."""

MAX_COUNTS = 200_000
"""Maximum number of sums of each width in one process. If there are more, the oldest buckets are forgotten."""
_MAX_BATCHES = 10_000


class UsageTable:
    """Implements `UsageCounters` in the memory of one process."""

    def __init__(self) -> None:
        self._tables = {width: _Sums(kept) for width, kept in BUCKETS_KEPT.items()}
        self._batches: OrderedDict[str, None] = OrderedDict()

    async def add_usage(self, batch: str, counts: Sequence[UsageCount]) -> None:
        """See `UsageCounters.add_usage`."""
        if batch in self._batches:
            return
        self._batches[batch] = None
        if len(self._batches) > _MAX_BATCHES:
            self._batches.popitem(last=False)
        for each in counts:
            self._tables[each.width].add(key_of(each), numbers_of(each))

    async def read_usage(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        """See `UsageCounters.read_usage`."""
        return counts_of(width, self._tables[width].read(first, last))


class _Sums:
    """The sums of one width, by bucket."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._buckets: dict[int, dict[Key, Numbers]] = {}
        self._count = 0

    def add(self, key: Key, numbers: Numbers) -> None:
        sums = self._buckets.get(key[0])
        if sums is None:
            sums = self._buckets[key[0]] = {}
            # Measured from this bucket, not from the newest one: a clock may have been far ahead for a while.
            self._forget(key[0] - self._kept)
        before = len(sums)
        add(sums, key, numbers)
        self._count += len(sums) - before
        while self._count > MAX_COUNTS and len(self._buckets) > 1:
            self._forget(min(self._buckets) + 1)

    def read(self, first: int, last: int) -> Iterable[tuple[Key, Numbers]]:
        for bucket in self._buckets:
            if first <= bucket <= last:
                yield from self._buckets[bucket].items()

    def _forget(self, oldest: int) -> None:
        """Forget all buckets before `oldest`."""
        for bucket in [each for each in self._buckets if each < oldest]:
            self._count -= len(self._buckets.pop(bucket))


def key_of(count: UsageCount) -> Key:
    return count.bucket, count.api, count.principal, count.model


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


def counts_of(width: UsageWidth, sums: Iterable[tuple[Key, Numbers]]) -> list[UsageCount]:
    """Convert sums to `UsageCount`s."""
    return [
        UsageCount(
            width=width,
            bucket=bucket,
            api=api,
            principal=principal,
            model=model,
            requests=requests,
            input_tokens=given,
            cached_tokens=cached,
            output_tokens=made,
            reasoning_tokens=reasoning,
        )
        for (bucket, api, principal, model), (requests, given, cached, made, reasoning) in sums
    ]
