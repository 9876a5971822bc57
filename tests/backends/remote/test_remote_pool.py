"""The pool's rules, with a clock and a chance of the tests' own."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import EngineUnavailable, RateLimited
from gateway_remote.breaker import Breaker
from gateway_remote.choose import choose, load_cap
from gateway_remote.failures import retry_after_seconds
from gateway_remote.pool import Lease, Pool, PoolSettings
from gateway_remote.prefix import PrefixIndex, prefix_chain
from gateway_remote.replica import endpoint
from tests.clock import Clock


def pool_of(count: int, clock: Clock | None = None, seed: int = 0, **options: object) -> Pool:
    made = Pool(
        "m",
        PoolSettings(**{"wait_for_replica": 0.05} | options),  # type: ignore[arg-type]
        clock=clock or Clock(),
        rng=random.Random(seed),
    )
    made.update([endpoint(f"http://10.0.0.{number}:8000") for number in range(count)])
    return made


@given(st.lists(st.sampled_from(["ok", "bad", "leave", "wait"]), max_size=60), st.integers(1, 4))
def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_probe_through_at_a_time(
    events: list[str], failures: int
) -> None:
    breaker = Breaker(failures=failures, seconds=1.0, max_seconds=4.0)
    now, in_a_row = 0.0, 0
    for event in events:
        state = breaker.state(now)
        if event == "wait":
            now += 0.7
            continue
        if not breaker.admits(now):
            assert state == "open"
            assert in_a_row >= failures
            now += 0.1
            continue
        probe = breaker.entered(now)
        assert probe == (state == "half_open")
        if probe:
            assert not breaker.admits(now), "a second probe at once"
        match event:
            case "ok":
                breaker.succeeded()
                in_a_row = 0
                assert breaker.state(now) == "closed"
            case "bad":
                in_a_row += 1
                breaker.failed(now, probe=probe)
                assert (breaker.state(now) == "open") == (in_a_row >= failures)
            case "leave":
                breaker.withdrawn(probe=probe)
                assert breaker.state(now) == state


def test_a_breaker_waits_twice_as_long_each_time_up_to_its_limit() -> None:
    breaker = Breaker(failures=1, seconds=1.0, max_seconds=4.0)
    now = 0.0
    breaker.failed(now, probe=False)
    for pause in (1.0, 2.0, 4.0, 4.0):
        assert breaker.state(now + pause - 0.01) == "open"
        now += pause
        assert breaker.state(now) == "half_open"
        assert breaker.entered(now)
        breaker.failed(now, probe=True)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=9),
    st.sampled_from(["affinity", "power_of_two", "least_loaded", "random"]),
    st.integers(1, 5),
    st.integers(0, 2**32),
)
def test_a_cache_is_followed_only_within_the_load_bound(
    state: list[tuple[int, int]], policy: str, worth: int, seed: int
) -> None:
    loads, matches = [load for load, _ in state], [match for _, match in state]
    chosen = choose(
        loads, matches, policy=policy, worth=worth, bound=1.25, slack=4, rng=random.Random(seed)
    )
    assert 0 <= chosen < len(loads)
    if policy == "least_loaded":
        assert loads[chosen] == min(loads)
    if policy == "affinity" and len(loads) > 1:
        cap = load_cap(loads, bound=1.25, slack=4)
        eligible = [
            place for place, load in enumerate(loads) if load < cap and matches[place] >= worth
        ]
        if eligible:
            assert matches[chosen] == max(matches[place] for place in eligible)
            assert loads[chosen] < cap


@given(st.lists(st.integers(0, 5), max_size=200), st.integers(1, 20), st.integers(0, 200))
def test_prompts_that_begin_alike_have_chains_that_begin_alike(
    tokens: list[int], block: int, cut: int
) -> None:
    whole = prefix_chain(tokens, block=block, seed=None)
    part = prefix_chain(tokens[:cut], block=block, seed=None)
    assert part == whole[: len(part)]
    assert len(whole) == len(tokens) // block
    index = PrefixIndex(1000)
    index.add(part)
    assert index.match(whole) == len(part)
    salted = PrefixIndex(1000)
    salted.add(prefix_chain(tokens, block=block, seed=("salt", None)))
    assert salted.match(whole) == 0


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=40), max_size=30))
def test_a_prefix_index_is_bounded_and_keeps_beginnings_longest(prompts: list[list[int]]) -> None:
    index = PrefixIndex(25)
    for tokens in prompts:
        chain = prefix_chain(tokens, block=2, seed=None)
        index.add(chain)
        assert len(index) <= 25
        assert index.match(chain) == min(len(chain), 25)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8), st.sampled_from([None, 1, 3]))
def test_every_place_is_given_back_and_no_limit_is_passed(
    seed: int, count: int, limit: int | None
) -> None:
    """Random requests, outcomes, ejections, returns, joins and departures; in the end all have had their turn."""
    rng = random.Random(seed)
    clock = Clock()

    async def scenario() -> None:
        pool = pool_of(count, clock, seed, max_running=limit, breaker_seconds=1.0)
        served = refused = 0

        async def one(number: int) -> None:
            nonlocal served, refused
            chain = prefix_chain([number % 3] * rng.randrange(64), block=16, seed=None)
            try:
                lease = await pool.acquire(chain)
            except (EngineUnavailable, RateLimited):
                refused += 1
                return
            replica = lease.replica
            assert replica.down is None or replica.running > 0
            assert limit is None or replica.running <= limit
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            outcome = rng.choice(["served", "served", "served", "failed", "busy", "abandoned"])
            pool.release(lease, outcome)
            served += 1

        async def weather() -> None:
            for _ in range(40):
                clock.now += rng.random()
                known = list(pool.replicas)
                if known:
                    replica = rng.choice(known)
                    if rng.random() < 0.5:
                        pool.check_failed(replica, "ill", threshold=1)
                    else:
                        pool.check_passed(replica)
                if rng.random() < 0.2:
                    numbers = rng.sample(range(10), rng.randrange(1, 9))
                    pool.update([endpoint(f"http://10.0.0.{each}:8000") for each in numbers])
                await asyncio.sleep(0)
            # The sky clears: who still waits is served, or told at once.
            pool.update([endpoint("http://10.0.0.1:8000")])
            for replica in pool.replicas:
                pool.check_passed(replica)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(weather())
            for number in range(120):
                task = group.create_task(one(number))
                if rng.random() < 0.05:
                    task.cancel()
                    refused += 1
                if rng.random() < 0.3:
                    await asyncio.sleep(0)
        assert all(replica.running == 0 for replica in pool.replicas)
        assert not any(replica.draining for replica in pool.replicas)
        assert not pool._waiters
        assert served + refused >= 120

    asyncio.run(scenario())


def test_load_spreads_within_bounds() -> None:
    """800 requests on eight replicas, all running: power of two keeps them close to 100 each; affinity under its cap."""

    async def spread(policy: str, prompts: list[list[int]]) -> list[int]:
        pool = pool_of(8, policy=policy)
        for tokens in prompts:
            await pool.acquire(prefix_chain(tokens, block=16, seed=None))
        return [replica.running for replica in pool.replicas]

    rng = random.Random(1)
    fresh = [[rng.randrange(1000) for _ in range(64)] for _ in range(800)]
    shared = [[1] * 64 for _ in range(800)]
    for prompts in (fresh, shared):
        for policy in ("affinity", "power_of_two", "least_loaded"):
            running = asyncio.run(spread(policy, prompts))
            assert sum(running) == 800
            assert max(running) <= 130, (policy, running)
    assert min(asyncio.run(spread("power_of_two", fresh))) >= 90


def test_a_replica_that_is_full_is_waited_for_in_order_of_arrival() -> None:
    async def scenario() -> list[int]:
        pool = pool_of(1, max_running=1)
        first = await pool.acquire()
        order: list[int] = []

        async def one(number: int) -> None:
            lease = await pool.acquire()
            order.append(number)
            await asyncio.sleep(0)
            pool.release(lease, "served")

        tasks = [asyncio.create_task(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.sleep(0)
        pool.release(first, "served")
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert asyncio.run(scenario()) == [0, 1, 3, 4]


def test_a_draining_replica_ends_what_it_runs_and_gets_nothing_new() -> None:
    async def scenario() -> None:
        pool = pool_of(2)
        leases = [await pool.acquire() for _ in range(10)]
        leaving = next(iter(pool.replicas))
        pool.update([each.endpoint for each in pool.replicas if each is not leaving])
        assert leaving in pool.replicas
        assert all([(await pool.acquire()).replica is not leaving for _ in range(10)])
        for lease in leases:
            pool.release(lease, "served")
        assert leaving not in pool.replicas

    asyncio.run(scenario())


def test_a_drained_replica_that_is_named_again_is_used_again() -> None:
    async def scenario() -> None:
        pool = pool_of(1)
        everything = [each.endpoint for each in pool.replicas]
        lease = await pool.acquire()
        pool.update([])
        with pytest.raises(EngineUnavailable):
            await pool.acquire()
        pool.update(everything)
        assert (await pool.acquire()).replica is lease.replica

    asyncio.run(scenario())


def test_a_replica_that_asks_to_wait_is_left_alone_for_as_long() -> None:
    async def scenario() -> None:
        clock = Clock()
        pool = pool_of(2, clock)
        lease = await pool.acquire()
        pool.release(lease, "busy", retry_after=5.0)
        other: list[Lease] = [await pool.acquire() for _ in range(6)]
        assert all(each.replica is not lease.replica for each in other)
        pool.release(other.pop(), "busy", retry_after=9.0)
        with pytest.raises(RateLimited) as caught:
            await pool.acquire()
        assert caught.value.headers["retry-after"] == "5"
        clock.now += 5.0
        assert (await pool.acquire()).replica is lease.replica

    asyncio.run(scenario())


def test_a_half_open_replica_is_tried_by_one_request_and_then_used_again() -> None:
    async def scenario() -> None:
        clock = Clock()
        pool = pool_of(2, clock, breaker_failures=1, breaker_seconds=2.0)
        lease = await pool.acquire()
        pool.release(lease, "failed")
        assert all([(await pool.acquire()).replica is not lease.replica for _ in range(5)])
        clock.now += 2.0
        probe = await pool.acquire()
        assert probe.probe
        assert probe.replica is lease.replica
        assert (await pool.acquire()).replica is not lease.replica
        pool.release(probe, "served")
        assert lease.replica.status(clock.now) == "up"

    asyncio.run(scenario())


def test_a_return_forgets_what_the_replica_had_read() -> None:
    async def scenario() -> None:
        pool = pool_of(1)
        chain = prefix_chain([1] * 64, block=16, seed=None)
        pool.release(await pool.acquire(chain), "served")
        (replica,) = pool.replicas
        assert replica.prefixes.match(chain) == 4
        pool.check_failed(replica, "gone", threshold=1)
        pool.check_passed(replica)
        assert replica.prefixes.match(chain) == 0

    asyncio.run(scenario())


def test_closing_the_pool_ends_the_wait_of_those_who_queue() -> None:
    async def scenario() -> None:
        pool = pool_of(1, max_running=1)
        await pool.acquire()
        waiting = asyncio.create_task(pool.acquire())
        await asyncio.sleep(0)
        pool.close()
        with pytest.raises(EngineUnavailable, match="shutting down"):
            await waiting

    asyncio.run(scenario())


class RestlessClock(Clock):
    """A clock that goes on with each reading, as real ones do: a decision that reads it twice sees two times."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def __call__(self) -> float:
        self.now += self._rng.choice([0.0, 0.0, 0.001, 0.1, 1.0])
        return self.now


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 3),
    st.sampled_from([None, 1, 2]),
    st.lists(
        st.sampled_from(["0", "-1", "nan", "-inf", "0.001", "inf", "1", "2", None, "soon"]),
        min_size=1,
        max_size=4,
    ),
)
def test_no_waiter_is_left_without_somebody_who_wakes_it(
    seed: int, count: int, limit: int | None, waits: list[str | None]
) -> None:
    """Whatever servers ask for, whatever health checks find, and however the clock goes on between two readings: while all
    is at rest, a request waits only for the end of another one on a replica that can serve."""
    rng = random.Random(seed)

    async def scenario() -> None:
        pool = pool_of(count, RestlessClock(rng), seed, max_running=limit, wait_for_replica=0.001)
        held: list[Lease] = []

        async def one() -> None:
            with contextlib.suppress(EngineUnavailable, RateLimited):
                held.append(await pool.acquire())

        tasks: list[asyncio.Task[None]] = []

        async def at_rest() -> None:
            for _ in range(4 * len(tasks) + 10):
                await asyncio.sleep(0)
            alive = [each for each in pool.replicas if not each.draining and each.down is None]
            if any(not task.done() for task in tasks):
                assert not alive or all(each.full for each in alive)
                if not alive:  # it gives up by itself, though nobody ends a request or comes
                    await asyncio.wait(tasks, timeout=10)
                    assert all(task.done() for task in tasks)

        for _ in range(40):
            match rng.randrange(6):
                case 0 | 1:
                    tasks.append(asyncio.create_task(one()))
                case 2 | 3 if held:
                    outcome = rng.choice(["served", "failed", "busy", "busy", "abandoned"])
                    after = retry_after_seconds(rng.choice(waits))
                    pool.release(held.pop(rng.randrange(len(held))), outcome, retry_after=after)
                case 4:
                    replica = rng.choice(list(pool.replicas))
                    if rng.random() < 0.4:
                        pool.check_failed(replica, "ill", threshold=1)
                    else:
                        pool.check_passed(replica)
                case 5 if tasks:
                    rng.choice(tasks).cancel()
            if rng.random() < 0.6:
                await at_rest()
            tasks = [task for task in tasks if not task.done()]
        await at_rest()
        pool.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *((odd, 1.0) for odd in (None, "", "soon", "0", "-0", "-5", "nan", "-inf", "0.001", "0.9")),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1.0),
        ("Mon, 01 Jan 0001 00:00:00 -0000", 1.0),
        ("1", 1.0),
        (" 7 ", 7.0),
        ("2.5", 2.5),
        *((long, 60.0) for long in ("61", "inf", "1e999", "Fri, 31 Dec 9999 23:59:59 GMT")),
    ],
)
def test_a_wait_that_makes_no_sense_is_like_none(value: str | None, seconds: float) -> None:
    assert retry_after_seconds(value) == seconds
