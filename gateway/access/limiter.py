"""Limits of principals. Requests are counted in the store; if it is unavailable, they are refused or counted
locally."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

from msgspec import Struct, structs

from gateway.base.caches import LruCache
from gateway.base.errors import (
    RateLimited,
    RequestLimitReached,
    StoreUnavailable,
    TokenLimitReached,
)
from gateway.base.task_context import running_task
from gateway.observe.request_context import current_context
from gateway.plugins.protocols import (
    LimitCounters,
    LimitState,
    Principal,
    PrincipalLimits,
    SettledRequest,
)
from gateway.storage.limit_table import DAY_SECONDS, LimitTable, remaining, seconds_until_regained
from gateway.wire.ids import new_id

logger = logging.getLogger("gateway.access.limiter")

LEASE_SECONDS = 60.0
"""Seconds after which requests of a process that has died no longer count as running."""
RETRY_SECONDS = 1.0
"""Interval between attempts while the store does not answer, in seconds."""
_MAX_PENDING = 100_000
"""Maximum number of ended requests that wait to be settled in the store. Further ones are dropped."""
_REFUSED = 4096
"""Maximum number of principals whose last refusal is remembered."""
_AT_ONCE = 500
"""Maximum number of ended requests in one call of the store."""


class AdmittedRequest(Struct, frozen=True, eq=False):
    """An admitted request."""

    principal: Principal
    request_id: str
    reserved: int
    day: int
    counters: LimitCounters


class Preparation:
    """A request that is being prepared. Ended when the request is admitted, refused or given up."""

    __slots__ = ("_counts", "_name")

    def __init__(self, name: str, counts: Counter[str]) -> None:
        self._name = name
        self._counts = counts
        counts[name] += 1

    def end(self) -> None:
        """End the preparation. Call it once."""
        self._counts[self._name] -= 1
        if not self._counts[self._name]:
            del self._counts[self._name]


class Limiter:
    """Counts the requests of principals with limits. Requests of principals without limits cause no work."""

    def __init__(
        self,
        counters: LimitCounters | None,
        *,
        timeout: float = 1.0,
        unavailable: Literal["refuse", "count_here"] = "refuse",
    ) -> None:
        """`counters`: the store's counters; None: requests are counted in this process. `timeout`: time limit for one
        admission, in seconds. `unavailable`: what to do with requests while the store does not answer."""
        self._here = LimitTable()
        self._counters: LimitCounters = self._here if counters is None else counters
        self._timeout = timeout
        self._unavailable = unavailable
        self._away_until = 0.0
        """Time of the event loop until which the store is not asked. 0.0: the store answers."""
        self._running: dict[str, AdmittedRequest] = {}
        self._preparing: Counter[str] = Counter()
        self._refused = LruCache[str, tuple[PrincipalLimits, float, LimitState]](_REFUSED)
        """By principal: its limits, the time until which all its requests are refused because it has sent too many in a
        minute, and the state to report."""
        self._ended: list[tuple[AdmittedRequest, int]] = []
        self._changed = asyncio.Event()

    def prepare(self, principal: Principal | None) -> Preparation | None:
        """Check the limits before any work is done for a request, without asking the store. None if the principal has
        no limits. Raises `RateLimited`.

        A request is refused while `admit` is known to refuse every request of the principal because of its requests
        per minute. It is also refused while this process prepares as many requests of the principal as it may run
        concurrently, or send in a minute. Only `admit` counts the request.
        """
        if principal is None or not principal.limits.any:
            return None
        name, limits = principal.name, principal.limits
        if (refused := self._refused.get(name)) is not None:
            known, until, state = refused
            left = until - asyncio.get_running_loop().time()
            if left > 0 and known == limits:
                state = structs.replace(state, retry_after=left)
                self._tell(limits, state)
                raise _refusal(principal, state, 1)
        preparing = self._preparing[name]
        if preparing and preparing >= min(
            most
            for most in (limits.max_concurrent_requests, limits.requests_per_minute, preparing + 1)
            if most is not None
        ):
            raise RequestLimitReached(
                f"Rate limit reached for the API key '{name}': {preparing} of its requests are being prepared, as many as it may "
                "send. Retry when one of them has begun.",
                retry_after=1,
            )
        return Preparation(name, self._preparing)

    async def admit(
        self, principal: Principal | None, *, prompt: int, output: int
    ) -> AdmittedRequest | None:
        """Count a request of `principal` with a prompt of `prompt` tokens that may generate `output` tokens. None if
        the principal has no limits.

        Sets the limit headers of the current request's answer. Raises `RateLimited`, or `StoreUnavailable` after at
        most `timeout` seconds.
        """
        if principal is None or not principal.limits.any:
            return None
        limits = principal.limits
        most = min(_token_limits(limits), default=None)
        wanted = max(1, prompt + output)
        if most is not None:
            if prompt > most:
                raise TokenLimitReached(
                    f"Request too large for the API key '{principal.name}': its limit is {most} tokens, and the prompt has "
                    f"{prompt}. Send a shorter one.",
                    retry_after=60,
                    retryable=False,
                )
            wanted = min(wanted, most)
        request_id = new_id("adm_")
        state, counters = await self._count(principal, request_id, wanted)
        self._tell(limits, state)
        if state.refused is not None:
            if state.refused == "requests":
                until = asyncio.get_running_loop().time() + state.retry_after
                self._refused.put(principal.name, (limits, until, state))
            raise _refusal(principal, state, wanted)
        charge = AdmittedRequest(principal, request_id, wanted, state.day, counters)
        self._running[request_id] = charge
        return charge

    def _tell(self, limits: PrincipalLimits, state: LimitState) -> None:
        context = current_context()
        if context is not None:
            context.limit_headers = limit_headers(limits, state)

    def settle(self, charge: AdmittedRequest, used: int) -> None:
        """End an admitted request that has used `used` tokens. Does nothing if it was ended before."""
        if self._running.pop(charge.request_id, None) is not None:
            self._end(charge, used)

    def _end(self, charge: AdmittedRequest, used: int) -> None:
        if len(self._ended) < _MAX_PENDING:
            self._ended.append((charge, used))
        self._changed.set()

    async def _count(
        self, principal: Principal, request_id: str, wanted: int
    ) -> tuple[LimitState, LimitCounters]:
        loop = asyncio.get_running_loop()
        error: Exception | None = None
        if loop.time() >= self._away_until:
            # The store may count a request and yet not answer. Such a request is settled with 0 tokens. Otherwise its
            # tokens would stay counted for the day, and it would count as running until its lease ends.
            today = int(time.time() // DAY_SECONDS)
            unanswered = AdmittedRequest(principal, request_id, wanted, today, self._counters)
            try:
                async with asyncio.timeout(self._timeout):
                    state = await self._counters.admit_request(
                        principal.name,
                        request_id,
                        principal.limits,
                        tokens=wanted,
                        seconds=LEASE_SECONDS,
                    )
            except asyncio.CancelledError:
                self._end(unanswered, 0)
                raise
            except (StoreUnavailable, TimeoutError) as failure:
                error = failure
                self._end(unanswered, 0)
                self._log_unavailable(failure)
            else:
                self._note_back()
                return state, self._counters
        if self._unavailable == "refuse":
            raise StoreUnavailable(
                "The limits of this API key cannot be checked: the server's store does not answer. Retry.",
                headers={"retry-after": "1"},
            ) from error
        state = await self._here.admit_request(
            principal.name, request_id, principal.limits, tokens=wanted, seconds=LEASE_SECONDS
        )
        return state, self._here

    def _log_unavailable(self, error: Exception) -> None:
        if not self._away_until:
            what = (
                "are refused with 503"
                if self._unavailable == "refuse"
                else "are counted by this process alone"
            )
            logger.warning(
                "limits of API keys: the store does not answer (%s). Requests of keys with limits %s until it does",
                error or f"no answer within {self._timeout:g} s", what,
            )  # fmt: skip
        self._away_until = asyncio.get_running_loop().time() + RETRY_SECONDS

    def _note_back(self) -> None:
        if self._away_until:
            logger.warning("limits of API keys: the store answers again")
            self._away_until = 0.0

    @asynccontextmanager
    async def maintenance(self) -> AsyncIterator[None]:
        """Settle ended requests in the store and renew running ones, while the context is entered."""
        try:
            async with running_task(self._maintain()):
                yield
        finally:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(self._timeout):
                    await self._settle_ended()

    async def _maintain(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            pause = LEASE_SECONDS / 3
            try:
                if loop.time() >= renewed + LEASE_SECONDS / 3:
                    await self._renew_running()
                    renewed = loop.time()
                await self._settle_ended()
            except (StoreUnavailable, TimeoutError) as error:
                self._log_unavailable(error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except Exception:
                # The task must go on: without it, ended requests would count as running.
                logger.exception("settling limits failed; it continues")
                await asyncio.sleep(RETRY_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _settle_ended(self) -> None:
        self._changed.clear()
        while self._ended:
            batch = self._ended[:_AT_ONCE]
            for counters in {id(charge.counters): charge.counters for charge, _ in batch}.values():
                mine = [_settled(*each) for each in batch if each[0].counters is counters]
                await counters.settle_requests(mine)
            del self._ended[: len(batch)]

    async def _renew_running(self) -> None:
        for counters in (self._counters, self._here):
            running = [
                (charge.principal.name, charge.request_id)
                for charge in self._running.values()
                if charge.counters is counters
            ]
            if running:
                await counters.renew_requests(running, seconds=LEASE_SECONDS)


def _token_limits(limits: PrincipalLimits) -> list[int]:
    both = (limits.tokens_per_minute, limits.tokens_per_day)
    return [most for most in both if most is not None]


def _settled(charge: AdmittedRequest, used: int) -> SettledRequest:
    return SettledRequest(
        principal=charge.principal.name,
        request_id=charge.request_id,
        limits=charge.principal.limits,
        reserved=charge.reserved,
        used=used,
        day=charge.day,
    )


def _refusal(principal: Principal, state: LimitState, wanted: int) -> RateLimited:
    limits, who = principal.limits, f"the API key '{principal.name}'"
    after = max(1, math.ceil(state.retry_after))
    again = f"Please try again in {duration(state.retry_after)}."
    match state.refused:
        case "requests":
            return RequestLimitReached(
                f"Rate limit reached for {who} on requests per min (RPM): Limit {limits.requests_per_minute}, Used "
                f"{math.ceil(state.requests)}, Requested 1. {again}",
                retry_after=after,
            )
        case "concurrent":
            return RequestLimitReached(
                f"Rate limit reached for {who} on concurrent requests: Limit {limits.max_concurrent_requests}. Retry when one "
                "of them has ended.",
                retry_after=after,
            )
        case "tokens":
            return TokenLimitReached(
                f"Rate limit reached for {who} on tokens per min (TPM): Limit {limits.tokens_per_minute}, Used "
                f"{math.ceil(state.tokens)}, Requested {wanted}. {again}",
                retry_after=after,
            )
        case _:
            return TokenLimitReached(
                f"Rate limit reached for {who} on tokens per day (TPD): Limit {limits.tokens_per_day}, Requested {wanted}. "
                f"{again}",
                retry_after=after,
            )


def limit_headers(limits: PrincipalLimits, state: LimitState) -> list[tuple[bytes, bytes]]:
    """The headers `x-ratelimit-*` of OpenAI's API."""
    headers: list[tuple[bytes, bytes]] = []
    for kind, limit, spent in (
        (b"requests", limits.requests_per_minute, state.requests),
        (b"tokens", limits.tokens_per_minute, state.tokens),
    ):
        if limit is not None:
            regained = duration(seconds_until_regained(spent, limit)).encode()
            headers += [
                (b"x-ratelimit-limit-" + kind, b"%d" % limit),
                (b"x-ratelimit-remaining-" + kind, b"%d" % remaining(spent, limit)),
                (b"x-ratelimit-reset-" + kind, regained),
            ]
    return headers


def duration(seconds: float) -> str:
    """A duration as OpenAI writes it: `20ms`, `1.5s`, `6m0s`, `1h2m3s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{f'{hours}h' if hours else ''}{minutes}m{whole % 60}s"
