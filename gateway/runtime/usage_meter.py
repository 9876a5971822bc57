"""Counts what requests use, and writes the sums into the store in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from gateway.errors import StoreUnavailable
from gateway.protocols import (
    WIDTH_SECONDS,
    AnswerUsage,
    Principal,
    UsageCount,
    UsageCounters,
    UsageWidth,
)
from gateway.request_stats import RunStats
from gateway.stores.usage_table import Key, Numbers, UsageTable, add, counts_of
from gateway.task_context import running_task
from gateway.wire.ids import new_id

logger = logging.getLogger("gateway.runtime.usage_meter")

WRITE_SECONDS = 1.0
"""Interval between writes to the store."""
_MINUTE = WIDTH_SECONDS["1m"]
_MINUTES = {width: seconds // _MINUTE for width, seconds in WIDTH_SECONDS.items()}
"""In each width."""
_MAX_TOKENS = 1 << 40
"""Maximum number of tokens of one kind that one run is counted with."""


MAX_NAMES = 10_000
"""Maximum number of principals that are counted by their names, in one process and day. Names of API keys do not count."""
OTHERS = "(others)"
"""The name under which further ones are counted together."""


class UsageMeter:
    """The usage of one process until it is written. Counting a request neither waits nor fails."""

    def __init__(
        self,
        counters: UsageCounters | None,
        hook: Any = None,
        *,
        is_key: Callable[[str], bool] = lambda name: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`counters`: those of the store; None counts in this process. `hook`: the plugin manager's hook caller.
        `is_key`: whether a name is that of an API key. Other principals are those of authenticators, which may find any number."""
        self._counters: UsageCounters = UsageTable() if counters is None else counters
        self._hook: Any = hook if hook is not None and hook.gateway_usage.get_hookimpls() else None
        self._clock = clock
        self._is_key = is_key
        self._names: set[str] = set()
        """Principals that were counted by their names on `_day`."""
        self._day = 0
        self.last_used: dict[str, float] = {}
        """When the last run of each principal has ended, in Unix time; of the last `MAX_NAMES`."""
        self._sums: dict[Key, Numbers] = {}
        """What is not written yet, by minutes."""
        self._batch: tuple[str, Sequence[UsageCount]] | None = None
        """What is being written; the same again, if the store did not answer."""
        self._writing = asyncio.Lock()
        self._away = False

    def run_finished(
        self, run: RunStats, principal: Principal | None, *, is_request: bool = True
    ) -> None:
        """Count a run that has ended, and tell the plugins of it. `is_request`: whether the request itself is counted."""
        usage = run.usage
        minute = int(self._clock() // _MINUTE)
        day = minute // _MINUTES["1d"]
        name = None if principal is None else self._counted_name(principal.name, day)
        if name is not None:
            self.last_used.pop(name, None)
            self.last_used[name] = self._clock()
            if len(self.last_used) > MAX_NAMES:
                del self.last_used[next(iter(self.last_used))]
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
                # A server elsewhere has made them up: absurd ones must not keep a store from writing the others.
                one, read, cached, made, thought = (
                    min(max(each, 0), _MAX_TOKENS) for each in numbers
                )
                numbers = (one, read, cached, made, thought)
        add(self._sums, key, numbers)
        if self._hook is not None and run.status is not None:
            self._tell_plugins(run, principal, numbers)

    def _counted_name(self, name: str, day: int) -> str:
        """`name`, or `OTHERS` if too many are counted."""
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
        """The sums of these minutes, hours or days, with what this process has counted until now. Raises
        `StoreUnavailable`."""
        await self._write()
        return await self._counters.read_usage(first, last, width=width)

    async def _write(self) -> None:
        async with self._writing:
            while self._batch is not None or self._sums:
                if self._batch is None:
                    sums, self._sums = self._sums, {}
                    self._batch = (new_id("use_"), _counts(sums))
                await self._counters.add_usage(*self._batch)
                self._batch = None

    @asynccontextmanager
    async def maintenance(self) -> AsyncIterator[None]:
        """While entered, the sums are written into the store."""
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
    """The sums of minutes, and what they add to hours and days."""
    counts: list[UsageCount] = []
    for width, minutes in _MINUTES.items():
        wider: dict[Key, Numbers] = {}
        for (minute, api, principal, model), numbers in sums.items():
            add(wider, (minute // minutes, api, principal, model), numbers)
        counts += counts_of(width, wider.items())
    return counts
