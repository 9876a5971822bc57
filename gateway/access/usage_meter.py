"""Counts the usage of requests, and writes the sums to the store in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from gateway.base.errors import StoreUnavailable
from gateway.base.task_context import running_task
from gateway.observe.run_stats import RunStats
from gateway.plugins.protocols import (
    WIDTH_SECONDS,
    AnswerUsage,
    Principal,
    UsageCount,
    UsageCounters,
    UsageWidth,
)
from gateway.storage.usage_table import Key, Numbers, UsageTable, add, counts_of
from gateway.wire.ids import new_id

logger = logging.getLogger("gateway.access.usage_meter")

WRITE_SECONDS = 1.0
"""Interval between writes to the store, in seconds."""
_MINUTE = WIDTH_SECONDS["1m"]
_MINUTES = {width: seconds // _MINUTE for width, seconds in WIDTH_SECONDS.items()}
"""Number of minutes in each width."""
_MAX_TOKENS = 1 << 40
"""Maximum number of tokens of one kind that are counted for one run."""
_MAX_ENDED = 64
"""Maximum number of runs that have ended and are not counted yet."""
MAX_NAMES = 10_000
"""Maximum number of principals that are counted under their own names, per process and day. Names of API keys are
always counted and are not included."""
OTHERS = "(others)"
"""The name under which all further principals are counted."""


class UsageMeter:
    """Collects the usage of one process until it is written to the store. Counting a request does not wait or fail."""

    def __init__(
        self,
        counters: UsageCounters | None,
        hook: Any = None,
        *,
        is_key: Callable[[str], bool] = lambda name: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`counters`: the store's counters; None: usage is kept in this process. `hook`: the plugin manager's hook
        caller. `is_key`: returns whether a name is that of an API key. Other principals come from authenticators, and
        their number is not limited."""
        self._counters: UsageCounters = UsageTable() if counters is None else counters
        self._hook: Any = hook if hook is not None and hook.gateway_usage.get_hookimpls() else None
        self._clock = clock
        self._is_key = is_key
        self._names: set[str] = set()
        """Principals other than API keys that were counted under their own names on `_day`."""
        self._day = 0
        self._last_used: dict[str, float] = {}
        """See `last_used`."""
        self._ended: list[tuple[RunStats, Principal | None, bool, float]] = []
        """Runs that are not counted yet, with their principals, whether each counts as a request, and the Unix time of
        its end."""
        self._sums: dict[Key, Numbers] = {}
        """Sums by minute that are not written yet."""
        self._batch: tuple[str, Sequence[UsageCount]] | None = None
        """The batch that is being written. If the store does not answer, the same batch is written again."""
        self._writing = asyncio.Lock()
        self._away = False

    def run_finished(
        self, run: RunStats, principal: Principal | None, *, is_request: bool = True
    ) -> None:
        """Count a run that has ended, and call the plugins' hook. `is_request`: whether the run counts as a request."""
        self._ended.append((run, principal, is_request, self._clock()))
        if self._hook is not None or len(self._ended) >= _MAX_ENDED:
            self._count_ended()

    @property
    def last_used(self) -> Mapping[str, float]:
        """Unix time at which the last run of each principal ended, for the `MAX_NAMES` most recent principals."""
        self._count_ended()
        return self._last_used

    def _count_ended(self) -> None:
        """Count the runs that have ended: many together cost a fraction."""
        ended, self._ended = self._ended, []
        for each in ended:
            self._count(*each)

    def _count(
        self, run: RunStats, principal: Principal | None, is_request: bool, now: float
    ) -> None:
        usage = run.usage
        minute = int(now // _MINUTE)
        day = minute // _MINUTES["1d"]
        name = None if principal is None else self._counted_name(principal.name, day)
        if name is not None:
            self._last_used.pop(name, None)
            self._last_used[name] = now
            if len(self._last_used) > MAX_NAMES:
                del self._last_used[next(iter(self._last_used))]
        key = (minute, run.api, name, run.model)
        if usage is None:
            numbers: Numbers = (int(is_request), 0, 0, 0, 0)
        else:
            numbers = (
                int(is_request),
                usage.input_tokens,
                usage.input_tokens_details.cached_tokens,
                usage.output_tokens,
                usage.output_tokens_details.reasoning_tokens,
            )
            if min(numbers) < 0 or max(numbers) > _MAX_TOKENS:
                # Invalid numbers from a remote server: they must not make the store reject the whole batch.
                one, read, cached, made, thought = (
                    min(max(each, 0), _MAX_TOKENS) for each in numbers
                )
                numbers = (one, read, cached, made, thought)
        add(self._sums, key, numbers)
        if self._hook is not None and run.status is not None:
            self._tell_plugins(run, principal, numbers)

    def _counted_name(self, name: str, day: int) -> str:
        """`name`, or `OTHERS` if too many names are counted already."""
        if day != self._day:
            self._day = day
            self._names.clear()
        if name in self._names or self._is_key(name):
            return name
        if len(self._names) >= MAX_NAMES:
            return OTHERS
        self._names.add(name)
        if len(self._names) == MAX_NAMES:
            logger.warning("usage is counted by the names of %d principals today; that of further ones is counted together, as %s",
                MAX_NAMES, OTHERS)  # fmt: skip
        return name

    def _tell_plugins(self, run: RunStats, principal: Principal | None, numbers: Numbers) -> None:
        assert run.status is not None, "it has ended"
        used = AnswerUsage(
            principal=principal,
            request_id=run.request_id,
            response_id=run.response_id,
            api=run.api,
            model=run.model,
            status=run.status,
            seconds=run.seconds,
            input_tokens=numbers[1],
            cached_tokens=numbers[2],
            output_tokens=numbers[3],
            reasoning_tokens=numbers[4],
        )
        try:
            self._hook.gateway_usage(used=used)
        except Exception:
            # A hook's failure must not affect the client.
            logger.exception("a gateway_usage hook failed")

    async def read(
        self, first: int, last: int, *, width: UsageWidth = "1d"
    ) -> Sequence[UsageCount]:
        """The sums of the buckets `first` to `last` (minutes, hours or days), including what this process has counted
        so far. Raises `StoreUnavailable`."""
        await self._write()
        return await self._counters.read_usage(first, last, width=width)

    async def _write(self) -> None:
        async with self._writing:
            self._count_ended()
            while self._batch is not None or self._sums:
                if self._batch is None:
                    sums, self._sums = self._sums, {}
                    self._batch = (new_id("use_"), _counts(sums))
                await self._counters.add_usage(*self._batch)
                self._batch = None

    @asynccontextmanager
    async def maintenance(self) -> AsyncIterator[None]:
        """Write the sums to the store periodically while the context is entered, and once at the end."""
        try:
            async with running_task(self._maintain()):
                yield
        finally:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._write()

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self._write()
            except StoreUnavailable as error:
                if not self._away:
                    logger.warning("usage is written later: %s", error.message)
                self._away = True
            except Exception:
                logger.exception("writing usage failed; it continues")
            else:
                self._away = False


def _counts(sums: dict[Key, Numbers]) -> list[UsageCount]:
    """The sums of minutes, and their contributions to hours and days."""
    counts: list[UsageCount] = []
    for width, minutes in _MINUTES.items():
        wider: dict[Key, Numbers] = {}
        for (minute, api, principal, model), numbers in sums.items():
            add(wider, (minute // minutes, api, principal, model), numbers)
        counts += counts_of(width, wider.items())
    return counts
