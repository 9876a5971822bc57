"""The replicas of one model, and who gets which request. No IO: a clock and a source of chance are handed in."""

from __future__ import annotations

import asyncio
import math
import random
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count

from msgspec import Struct

from gateway.errors import EngineUnavailable, GatewayError, RateLimited
from gateway_remote.breaker import Breaker
from gateway_remote.choose import Policy, choose
from gateway_remote.prefix import PrefixIndex
from gateway_remote.replica import Endpoint, Outcome, Replica


class PoolSettings(Struct, frozen=True, kw_only=True):
    """Times in seconds. The meanings are `RemoteConfig`'s."""

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
    """One request's place on a replica. Give it back to the pool exactly once."""

    replica: Replica
    probe: bool
    """Whether it tries out a replica that has failed."""
    matched: int
    """Blocks of its prompt that the replica has read before."""


class Pool:
    """Hands out replicas. Bound to one event loop; nothing in it blocks."""

    def __init__(
        self, name: str, settings: PoolSettings, *, clock: Callable[[], float], rng: random.Random
    ) -> None:
        """`name` is the model's, for messages; `clock` counts seconds and never runs backwards."""
        self._name = name
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._replicas: dict[Endpoint, Replica] = {}
        self._tickets = count()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        """In order of arrival."""
        self._closed = False

    @property
    def replicas(self) -> Collection[Replica]:
        """All that are known, those that drain included."""
        return self._replicas.values()

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiters)

    def close(self) -> None:
        """Hand out nothing more: who waits, and who comes, gets `EngineUnavailable`."""
        self._closed = True
        self._wake_all()

    def update(self, endpoints: Iterable[Endpoint]) -> None:
        """These are the replicas from now on: new ones join, ones that are not named drain and are forgotten."""
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
        """An active check found the replica well."""
        if replica.check_passed(self._clock()):
            self._wake_all()

    def check_failed(self, replica: Replica, reason: str, *, threshold: int) -> None:
        """An active check went wrong. An ejected replica's requests without a token go to others."""
        if replica.check_failed(reason, threshold=threshold):
            replica.give_back_unbegun()

    async def acquire(
        self, chain: Sequence[int] = (), *, avoiding: Collection[Replica] = ()
    ) -> Lease:
        """A place on the best replica; waits where all have as many requests as they may.

        `avoiding` are replicas that this request has tried; they come last. Raises `EngineUnavailable` where no replica
        can serve for `wait_for_replica` seconds, and `RateLimited` where all that can have asked to wait.
        """
        try:
            return await self._acquire(chain, avoiding)
        except GatewayError:
            # This one may have been woken for a change that the next in the queue has to learn of too.
            self._wake_one()
            raise

    async def _acquire(self, chain: Sequence[int], avoiding: Collection[Replica]) -> Lease:
        ticket = next(self._tickets)
        queued = bool(self._waiters)
        give_up: float | None = None
        while True:
            if self._closed:
                raise EngineUnavailable("The server is shutting down.")
            if not queued:
                replica = self._pick(chain, avoiding)
                if replica is not None:
                    return self._lease(replica, chain)
            queued = False
            alive = [each for each in self.replicas if not each.draining and each.down is None]
            if alive:
                give_up = None
                self._refuse_if_all_busy(alive)
                await self._wait(ticket)
                continue
            now = self._clock()
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
        """Give a place back, with what came of it. `retry_after` is a busy replica's wish, in seconds."""
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
        """Whether no replica is left that could serve and is not among `tried`."""
        return all(
            each.draining or each.down is not None or each in tried for each in self.replicas
        )

    def has_spare(self, tried: Collection[Replica]) -> bool:
        """Whether a replica that is not among `tried` could serve at once."""
        now = self._clock()
        return any(
            each.status(now) == "up" and not each.full and each not in tried
            for each in self.replicas
        )

    def unavailable(self) -> EngineUnavailable:
        """Why nothing can be handed out, in a sentence for the client."""
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

    def _pick(self, chain: Sequence[int], avoiding: Collection[Replica]) -> Replica | None:
        now = self._clock()
        free = [
            each
            for each in self.replicas
            if not each.draining and each.down is None and not each.full and each.busy_until <= now
        ]
        fresh = [each for each in free if each not in avoiding]
        # A half-open replica is tried first, by one request at a time: waiting until the others are worse would keep
        # it out for ever. That request is tried elsewhere if it fails.
        for each in fresh:
            if each.breaker.state(now) == "half_open" and each.breaker.admits(now):
                return each
        for among in (fresh, free):
            closed = [each for each in among if each.breaker.state(now) == "closed"]
            # Where all breakers are open, one that the health checks call well is better than an error.
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

    def _lease(self, replica: Replica, chain: Sequence[int]) -> Lease:
        matched = replica.prefixes.match(chain)
        replica.prefixes.add(chain)
        replica.running += 1
        replica.totals.requests += 1
        replica.totals.affine += matched > 0
        return Lease(replica, replica.breaker.entered(self._clock()), matched)

    def _refuse_if_all_busy(self, alive: Collection[Replica]) -> None:
        now = self._clock()
        waits = [each.busy_until - now for each in alive if not each.full]
        if waits and min(waits) > 0:
            raise RateLimited(
                f"All engines of the model '{self._name}' are at their limits. Retry later.",
                retry_after=max(1, math.ceil(min(waits))),
            )

    async def _wait(self, ticket: int) -> None:
        """Until something has changed. The place in the queue is the ticket's: who was woken in vain keeps it."""
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
