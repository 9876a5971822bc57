"""Counters for limits, in the memory of one process; see `gateway.plugins.protocols.LimitCounters`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from gateway.plugins.protocols import LimitState, PrincipalLimits, SettledRequest

DAY_SECONDS = 86_400
_SWEEP = 1024
"""Number of principals at which idle ones are first forgotten; then whenever twice as many as were left have
accumulated."""


class _Bucket:
    """The count for a limit per minute. It decays at the limit's rate."""

    __slots__ = ("at", "spent")

    def __init__(self) -> None:
        self.spent = 0.0
        self.at = 0.0

    def decay(self, limit: int, now: float) -> float:
        """The count at `now`."""
        self.spent, self.at = decayed(self.spent, self.at, limit, now), counted_at(self.at, now)
        return self.spent


class _Counters:
    """The counters of one principal."""

    __slots__ = ("day", "day_tokens", "requests", "running", "tokens")

    def __init__(self) -> None:
        self.requests = _Bucket()
        self.tokens = _Bucket()
        self.day = 0
        self.day_tokens = 0
        self.running: dict[str, tuple[float, LimitState]] = {}
        """Maps the ids of running requests to the time when they are forgotten and the state that their admission
        returned."""


class LimitTable:
    """Implements `LimitCounters` in the memory of one process. No method awaits, so each is atomic.

    `clock` returns Unix time.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._principals: dict[str, _Counters] = {}
        self._sweep_at = _SWEEP

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        """See `LimitCounters.admit_request`."""
        now = self._clock()
        counters = self._principals.get(principal)
        if counters is None:
            self._forget_idle(now)
            counters = self._principals[principal] = _Counters()
        if (known := counters.running.get(request_id)) is not None:
            return known[1]
        day = int(now // DAY_SECONDS)
        if counters.day != day:
            counters.day, counters.day_tokens = day, 0
        requests, spent = counters.requests, counters.tokens
        if (most := limits.requests_per_minute) is not None:
            requests.decay(most, now)
        if (most := limits.tokens_per_minute) is not None:
            spent.decay(most, now)
        if limits.max_concurrent_requests is not None:
            for each in [each for each, (ends, _) in counters.running.items() if ends <= now]:
                del counters.running[each]
        refused = refusal(
            limits,
            requests=requests.spent,
            spent=spent.spent,
            day_tokens=counters.day_tokens,
            running=len(counters.running),
            tokens=tokens,
            now=now,
        )
        if refused is not None:
            return refused
        requests.spent += 1
        spent.spent += tokens
        counters.day_tokens += tokens
        state = LimitState(requests=requests.spent, tokens=spent.spent, day=day)
        counters.running[request_id] = (now + seconds, state)
        return state

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        """See `LimitCounters.settle_requests`."""
        now = self._clock()
        for each in ended:
            counters = self._principals.get(each.principal)
            if counters is None or counters.running.pop(each.request_id, None) is None:
                continue
            change = each.used - each.reserved
            if (most := each.limits.tokens_per_minute) is not None:
                spent = counters.tokens.decay(most, now) + change
                counters.tokens.spent = max(0.0, spent)
            if counters.day == each.day:
                counters.day_tokens = max(0, counters.day_tokens + change)

    async def renew_requests(self, running: Sequence[tuple[str, str]], *, seconds: float) -> None:
        """See `LimitCounters.renew_requests`."""
        ends = self._clock() + seconds
        for principal, request_id in running:
            counters = self._principals.get(principal)
            if counters is not None and (known := counters.running.get(request_id)) is not None:
                counters.running[request_id] = (ends, known[1])

    def _forget_idle(self, now: float) -> None:
        """Forget principals whose counters no longer affect any limit."""
        if len(self._principals) < self._sweep_at:
            return
        day = int(now // DAY_SECONDS)
        for name, counters in list(self._principals.items()):
            last = max(counters.requests.at, counters.tokens.at)
            if not counters.running and counters.day != day and last + DAY_SECONDS < now:
                del self._principals[name]
        self._sweep_at = max(_SWEEP, 2 * len(self._principals))


_SET_BACK = 60.0
"""Maximum difference of the clocks of gateways that share counters, in seconds."""
_ROUNDING = 1e-6
"""Tolerance for accumulated floating-point errors."""


def decayed(spent: float, at: float, limit: int | None, now: float) -> float:
    """Return what remains at time `now` of the count `spent`, which was taken at time `at`."""
    if limit is None or now <= at:
        return spent
    return max(0.0, spent - (now - at) * limit / 60)


def counted_at(at: float, now: float) -> float:
    """Return the new time of a count that was taken at time `at` and is changed at `now`.

    If `now` is slightly earlier, because the clocks of gateways differ, the time stays `at`: going back would let the
    count decay twice for the same interval. If `now` is much earlier, because the clock was set back, it is `now`:
    otherwise the count would not decay until the clock has caught up.
    """
    return now if now >= at or at - now > _SET_BACK else at


def refusal(
    limits: PrincipalLimits,
    *,
    requests: float,
    spent: float,
    day_tokens: int,
    running: int,
    tokens: int,
    now: float,
) -> LimitState | None:
    """The reason why a request of `tokens` tokens is refused, given the counts at `now`; None if it is admitted.

    If it exceeds several limits, returns the one for which the client has to wait longest.
    """
    day = int(now // DAY_SECONDS)
    refused: list[tuple[float, LimitState]] = []

    def refuse(name: str, wait: float) -> None:
        state = LimitState(
            refused=name,  # type: ignore[arg-type]  # one of the names below
            retry_after=wait,
            requests=requests,
            tokens=spent,
            day=day,
        )
        refused.append((wait, state))

    if (most := limits.requests_per_minute) is not None:
        over = requests + 1 - most
        if over > _ROUNDING:
            refuse("requests", over * 60 / most)
    if (most := limits.tokens_per_minute) is not None:
        over = spent + tokens - most
        if over > _ROUNDING:
            refuse("tokens", over * 60 / most)
    if (most := limits.tokens_per_day) is not None and day_tokens + tokens > most:
        refuse("day", (day + 1) * DAY_SECONDS - now)
    if (most := limits.max_concurrent_requests) is not None and running >= most:
        refuse("concurrent", 1.0)
    return max(refused, key=lambda each: each[0])[1] if refused else None


def seconds_until_regained(spent: float, limit: int) -> float:
    """Seconds until a count for a limit per minute has decayed to zero."""
    return max(0.0, spent * 60 / limit)


def remaining(spent: float, limit: int) -> int:
    """The rest of a limit, as a whole number."""
    return max(0, math.floor(limit - spent + _ROUNDING))
