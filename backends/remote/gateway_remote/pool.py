"""The replicas of one model and their assignment to requests. Does no IO: clock and random source are passed in."""

from __future__ import annotations

import asyncio
import math
import random
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count

from msgspec import Struct

from gateway.sdk import EngineUnavailable, GatewayError, RateLimited
from gateway_remote.breaker import Breaker
from gateway_remote.choose import Policy, choose
from gateway_remote.prefix import PrefixIndex
from gateway_remote.replica import Endpoint, Outcome, Replica


class PoolSettings(Struct, frozen=True, kw_only=True):
    """Pool settings, as in `RemoteConfig`. Times are in seconds."""

    policy: Policy = "affinity"
    max_running: int | None = None
    affinity_blocks: int = 65536
    affinity_share: float = 0.5
    affinity_bound: float = 1.25
    affinity_slack: int = 4
    breaker_failures: int = 3
    breaker_seconds: float = 2.0
    breaker_max_seconds: float = 60.0
    wait_for_replica: float = 2.0


class Lease(Struct, frozen=True, eq=False):
    """A request's slot on a replica. Return it to the pool exactly once."""

    replica: Replica
    probe: bool
    """Whether the request probes a replica that has failed."""
    matched: int
    """Number of prompt blocks that the replica has cached."""


class Pool:
    """Assigns replicas to requests. Bound to one event loop; never blocks."""

    def __init__(
        self, name: str, settings: PoolSettings, *, clock: Callable[[], float], rng: random.Random
    ) -> None:
        """`name` is the model's name, for messages. `clock` returns monotonic seconds."""
        self._name = name
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._replicas: dict[Endpoint, Replica] = {}
        self._tickets = count()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        """Waiting requests, in order of arrival."""
        self._closed = False

    @property
    def replicas(self) -> Collection[Replica]:
        """All known replicas, including draining ones."""
        return self._replicas.values()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiters)

    def close(self) -> None:
        """Reject all queued and future requests with `EngineUnavailable`."""
        self._closed = True
        self._wake_all()

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """Set the current replicas. New ones are added; missing ones drain and are then removed."""
        named = dict.fromkeys(endpoints)
        for where in named:
            known = self._replicas.get(where)
            if known is None:
                self._replicas[where] = self._new(where)
            else:
                known.draining = False
        for where, replica in tuple(self._replicas.items()):
            if where not in named:
                replica.draining = True
                self._forget_drained(replica)
        self._wake_all()

    def check_passed(self, replica: Replica) -> None:
        """Record a successful health check."""
        if replica.check_passed(self._clock()):
            self._wake_all()

    def check_failed(self, replica: Replica, reason: str, *, threshold: int) -> None:
        """Record a failed health check. If it ejects the replica, requests without a token move to others, and those that
        wait for a slot no longer wait for one here."""
        if replica.check_failed(reason, threshold=threshold):
            replica.cancel_waiting()
            self._wake_all()

    async def acquire(
        self, chain: Sequence[int] = (), *, avoiding: Collection[Replica] = ()
    ) -> Lease:
        """Acquire a slot on the best replica. Waits while all are at their limits.

        `avoiding` are replicas that this request has tried; they come last. Raises `EngineUnavailable` if no replica
        can serve within `wait_for_replica` seconds, and `RateLimited` if all usable replicas are overloaded.
        """
        try:
            return await self._acquire(chain, avoiding)
        except GatewayError:
            # This waiter may have consumed a wake-up that the next in the queue needs too.
            self._wake_one()
            raise

    async def _acquire(self, chain: Sequence[int], avoiding: Collection[Replica]) -> Lease:
        ticket = next(self._tickets)
        queued = bool(self._waiters)
        give_up: float | None = None
        while True:
            if self._closed:
                raise EngineUnavailable("The server is shutting down.")
            # One reading of the clock for the whole decision. A replica that became free between two readings would be
            # neither picked nor refused, and nobody would wake the request.
            now = self._clock()
            if not queued:
                replica = self._pick(chain, avoiding, now)
                if replica is not None:
                    return self._lease(replica, chain, now)
            queued = False
            alive = [each for each in self.replicas if not each.draining and each.down is None]
            if alive:
                give_up = None
                self._refuse_if_all_busy(alive, now)
                # All are full here, or others wait already: the end of a request wakes the first who waits.
                await self._wait(ticket)
                continue
            if give_up is None:
                give_up = now + self._settings.wait_for_replica
            if now >= give_up:
                raise self.unavailable()
            try:
                async with asyncio.timeout(give_up - now):
                    await self._wait(ticket)
            except TimeoutError:
                raise self.unavailable() from None

    async def ready(self) -> None:
        """Return once some replica can serve; raises as `acquire` does."""
        if any(not each.draining and each.down is None for each in self.replicas):
            return
        self.release(await self.acquire(), "abandoned")

    def release(self, lease: Lease, outcome: Outcome, *, retry_after: float = 1.0) -> None:
        """Release a slot and record the request's outcome. `retry_after` is the delay that a busy replica asked for, in
        seconds, as from `gateway_remote.failures.retry_after_seconds`."""
        replica, totals = lease.replica, lease.replica.totals
        replica.running -= 1
        now = self._clock()
        match outcome:
            case "served":
                totals.served += 1
                replica.breaker.succeeded()
            case "failed":
                totals.failed += 1
                if replica.breaker.failed(now, probe=lease.probe):
                    totals.ejections += 1
                    replica.prefixes.clear()
            case "busy":
                totals.busy += 1
                replica.busy_until = now + retry_after
                replica.breaker.withdrawn(probe=lease.probe)
            case "abandoned":
                totals.abandoned += 1
                replica.breaker.withdrawn(probe=lease.probe)
        if replica.draining:
            self._forget_drained(replica)
        self._wake_one()

    def tried_all(self, tried: Collection[Replica]) -> bool:
        """Whether every replica that could serve is in `tried`."""
        return all(
            each.draining or each.down is not None or each in tried for each in self.replicas
        )

    def has_spare(self, tried: Collection[Replica]) -> bool:
        """Whether a replica outside `tried` could serve at once."""
        now = self._clock()
        return any(
            each.status(now) == "up" and not each.full and each not in tried
            for each in self.replicas
        )

    def unavailable(self) -> EngineUnavailable:
        """The error that tells the client why no replica is available."""
        known = [each for each in self.replicas if not each.draining]
        if not known:
            return EngineUnavailable(f"The model '{self._name}' has no engine at the moment.")
        reasons = "; ".join(f"{each.endpoint}: {each.down or 'failing'}" for each in known[:3])
        more = f"; and {len(known) - 3} more" if len(known) > 3 else ""
        return EngineUnavailable(
            f"No engine of the model '{self._name}' can serve at the moment ({reasons}{more}). Retry later."
        )

    def _new(self, where: Endpoint) -> Replica:
        settings = self._settings
        return Replica(
            where,
            breaker=Breaker(
                failures=settings.breaker_failures,
                seconds=settings.breaker_seconds,
                max_seconds=settings.breaker_max_seconds,
            ),
            prefixes=PrefixIndex(settings.affinity_blocks),
            limit=settings.max_running,
        )

    def _forget_drained(self, replica: Replica) -> None:
        if not replica.running and self._replicas.get(replica.endpoint) is replica:
            del self._replicas[replica.endpoint]

    def _pick(
        self, chain: Sequence[int], avoiding: Collection[Replica], now: float
    ) -> Replica | None:
        free = [
            each
            for each in self.replicas
            if not each.draining and each.down is None and not each.full and each.busy_until <= now
        ]
        fresh = [each for each in free if each not in avoiding]
        # A half-open replica is probed first, by one request at a time, which is retried elsewhere on failure.
        # Otherwise it would never be used while others are healthy.
        for each in fresh:
            if each.breaker.state(now) == "half_open" and each.breaker.admits(now):
                return each
        for among in (fresh, free):
            closed = [each for each in among if each.breaker.state(now) == "closed"]
            # If all breakers are open, use a replica whose health checks pass rather than fail.
            if candidates := closed or among:
                return self._choose(candidates, chain)
        return None

    def _choose(self, candidates: list[Replica], chain: Sequence[int]) -> Replica:
        settings = self._settings
        affine = settings.policy == "affinity" and len(candidates) > 1
        index = choose(
            [each.running for each in candidates],
            [each.prefixes.match(chain) if affine else 0 for each in candidates],
            policy=settings.policy,
            worth=max(1, math.ceil(settings.affinity_share * len(chain))),
            bound=settings.affinity_bound,
            slack=settings.affinity_slack,
            rng=self._rng,
        )
        return candidates[index]

    def _lease(self, replica: Replica, chain: Sequence[int], now: float) -> Lease:
        matched = replica.prefixes.match(chain)
        replica.prefixes.add(chain)
        replica.running += 1
        replica.totals.requests += 1
        replica.totals.affine += matched > 0
        return Lease(replica, replica.breaker.entered(now), matched)

    def _refuse_if_all_busy(self, alive: Collection[Replica], now: float) -> None:
        waits = [each.busy_until - now for each in alive if not each.full]
        if waits and min(waits) > 0:
            raise RateLimited(
                f"All engines of the model '{self._name}' are at their limits. Retry later.",
                retry_after=max(1, math.ceil(min(waits))),
            )

    async def _wait(self, ticket: int) -> None:
        """Wait until something changes. The ticket keeps the request's position in the queue after a wake-up in
        vain."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        insort(self._waiters, (ticket, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake_one()
            else:
                self._waiters = [each for each in self._waiters if each[0] != ticket]
            raise

    def _wake_one(self) -> None:
        while self._waiters:
            _, waiter = self._waiters.pop(0)
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
