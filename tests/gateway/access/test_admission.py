"""Admission: who waits, in which order, and what a flood does to others. Time is simulated."""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.admission import Admission
from gateway.base.errors import RateLimited
from gateway.plugins.protocols import Principal

ADA, BOB = Principal(name="ada"), Principal(name="bob")


class _NoWaiting(selectors.SelectSelector):
    """A selector that does not wait, but tells for how long it would have."""

    def __init__(self, passed: Callable[[float], None]) -> None:
        super().__init__()
        self._passed = passed

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits for something that does not come"
        self._passed(timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_NoWaiting(self._pass))

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


def simulate(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)


async def work_of(
    admission: Admission,
    principal: Principal | None,
    seconds: float,
    waits: list[float] | None = None,
    *,
    prompt: int = 100,
    output: int = 100,
    priority: int = 0,
) -> None:
    """One request. Raises `RateLimited`."""
    loop = asyncio.get_running_loop()
    place = admission.reserve(principal, prompt=prompt, priority=priority)
    came = loop.time()
    async with place:
        if waits is not None:
            waits.append(loop.time() - came)
        await asyncio.sleep(seconds)
    place.used(prompt, output)


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def _answer_times(flood: int, scheduling: Literal["fair", "fifo"] = "fair") -> list[float]:
    """How long a key waits for the answers to 400 requests, which take a second each and 40 % of all slots, while another key
    sends `flood` requests."""
    admission = Admission(
        "m",
        max_running=16,
        max_waiting=1000 + 2 * flood,
        max_waiting_per_key=flood + 1,
        scheduling=scheduling,
        several=lambda: True,
    )
    chance, times = random.Random(7), list[float]()
    loop = asyncio.get_running_loop()

    async def steady(seconds: float) -> None:
        came = loop.time()
        await work_of(admission, ADA, seconds, output=int(100 * seconds))
        times.append(loop.time() - came)

    async with asyncio.TaskGroup() as group:
        for number in range(400):
            if number in (5, 100, 200, 300):
                for _ in range(flood // 4):
                    seconds = chance.uniform(0.5, 1.5)
                    group.create_task(work_of(admission, BOB, seconds, output=int(100 * seconds)))
            group.create_task(steady(chance.uniform(0.5, 1.5)))
            await asyncio.sleep(chance.expovariate(0.4 * 16))
    return times


def test_a_flood_of_one_key_leaves_the_wait_of_another_within_twice_what_it_is_alone() -> None:
    alone, flooded = simulate(_answer_times(0)), simulate(_answer_times(12_000))
    assert len(alone) == len(flooded) == 400
    assert p95(flooded) <= 2 * p95(alone)
    in_order = simulate(_answer_times(12_000, "fifo"))
    assert p95(in_order) > 50 * p95(alone), "which is what the flood does otherwise"


def test_a_flood_leaves_places_for_others() -> None:
    async def run() -> None:
        admission = Admission("m", max_running=1, max_waiting=1000, several=lambda: True)
        taken = 0
        for _ in range(12_000):
            try:
                admission.reserve(BOB)
                taken += 1
            except RateLimited:
                pass
        with pytest.raises(RateLimited, match="other keys"):
            admission.reserve(BOB)
        assert taken == pytest.approx(500, abs=2)
        for _ in range(100):
            admission.reserve(ADA)

    simulate(run())


def test_the_only_key_may_take_all_places() -> None:
    async def run() -> None:
        for principal in (None, ADA):
            admission = Admission("m", max_running=2, max_waiting=10)
            for _ in range(12):
                admission.reserve(principal)
            with pytest.raises(RateLimited, match="at its limit of 2 running and 10 waiting"):
                admission.reserve(principal)

    simulate(run())


def test_what_ran_between_two_looks_counts() -> None:
    async def run() -> list[int]:
        admission = Admission("m", max_running=2, max_waiting=100)
        await asyncio.gather(*(work_of(admission, ADA, 0.04) for _ in range(3)))
        seen = [admission.most_running(), admission.most_running()]
        async with admission.reserve(ADA):
            seen += [admission.most_running(), admission.most_running()]
        return [*seen, admission.most_running(), admission.most_running()]

    assert simulate(run()) == [2, 0, 1, 1, 1, 0]


def test_a_bound_per_key_is_kept() -> None:
    async def run() -> None:
        admission = Admission(
            "m", max_running=1, max_waiting=100, max_waiting_per_key=3, several=lambda: True
        )
        for _ in range(3):
            admission.reserve(ADA)
        with pytest.raises(RateLimited, match="'ada' has 3 requests waiting"):
            admission.reserve(ADA)
        admission.reserve(BOB)

    simulate(run())


def test_lower_priorities_are_served_first_and_arrivals_in_order_with_fifo() -> None:
    async def order(scheduling: Literal["fair", "fifo"]) -> str:
        admission = Admission("m", max_running=1, max_waiting=100, scheduling=scheduling)
        served = ""

        async def one(letter: str, priority: int) -> None:
            nonlocal served
            async with admission.reserve(Principal(name=letter, priority=priority)):
                served += letter
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            for letter, priority in (("x", 5), ("a", 1), ("b", 0), ("c", -1), ("a", 1), ("c", -1)):
                group.create_task(one(letter, priority))
        return served

    assert simulate(order("fair")) == "xccbaa"
    assert simulate(order("fifo")) == "xabcac"


@pytest.mark.parametrize("scheduling", ["fair", "fifo"])
@pytest.mark.parametrize("named", [True, False])
def test_what_no_client_waits_for_is_served_last_in_any_order_and_without_keys(
    scheduling: Literal["fair", "fifo"], named: bool
) -> None:
    async def order() -> str:
        admission = Admission("m", max_running=1, max_waiting=100, scheduling=scheduling)
        served = ""

        async def one(letter: str, priority: int) -> None:
            nonlocal served
            async with admission.reserve(ADA if named else None, priority=priority):
                served += letter
                await asyncio.sleep(1)

        async with asyncio.TaskGroup() as group:
            for letter, priority in (("b", 100), ("b", 100), ("c", 0), ("b", 100), ("c", 0)):
                group.create_task(one(letter, priority))
        return served

    assert simulate(order()) == "bccbb"


@pytest.mark.parametrize(("max_running", "most"), [(1, 1), (2, 1), (8, 7), (16, 14)])
@pytest.mark.parametrize("scheduling", ["fair", "fifo"])
def test_what_no_client_waits_for_leaves_a_place_for_the_next_client(
    scheduling: Literal["fair", "fifo"], max_running: int, most: int
) -> None:
    """However low the client's own priority is."""

    async def run() -> None:
        admission = Admission("m", max_running=max_running, max_waiting=100, scheduling=scheduling)
        client = Principal(name="client", priority=500)

        async def one(principal: Principal, priority: int) -> None:
            async with admission.reserve(principal, priority=priority):
                await asyncio.sleep(10)

        async with asyncio.TaskGroup() as group:
            lines = [group.create_task(one(ADA, 100)) for _ in range(40)]
            await asyncio.sleep(1)
            assert admission.running == most
            clients = [group.create_task(one(client, 0)) for _ in range(max_running)]
            await asyncio.sleep(1)
            assert admission.running == max_running
            # The places that become free are the clients' first.
            await asyncio.sleep(8.5)
            assert admission.running == max_running
            assert sum(each.done() for each in lines) == most
            await asyncio.gather(*clients)
            assert sum(each.done() for each in lines) == most
        assert (admission.running, admission.waiting) == (0, 0)

    simulate(run())


@pytest.mark.parametrize("per_key", [None, 1, 3])
@pytest.mark.parametrize(
    ("owner", "clients"), [(None, [None] * 8), (ADA, [ADA] * 8), (BOB, [ADA, ADA, BOB] * 3)]
)
def test_what_no_client_waits_for_takes_no_place_in_the_queue_from_clients(
    owner: Principal | None, clients: list[Principal | None], per_key: int | None
) -> None:
    """Neither in the model's queue nor of the key's share of it."""

    async def admitted(lines: int) -> list[bool]:
        """Which requests of `clients` are, while three of `lines` run and as many wait as may."""
        admission = Admission(
            "m",
            max_running=4,
            max_waiting=4,
            max_waiting_per_key=per_key,
            several=lambda: owner is not None,
        )
        tasks = []
        for _ in range(lines):
            with contextlib.suppress(RateLimited):
                place = admission.reserve(owner, priority=100)
                tasks.append(asyncio.create_task(place.__aenter__()))
                await asyncio.sleep(0)
        assert admission.running == 3
        assert (admission.waiting > 0) == (lines > 3)
        if lines > 3:
            with pytest.raises(RateLimited):
                admission.reserve(owner, priority=100)
        got = list[bool]()
        places = []
        for each in clients:
            try:
                places.append(admission.reserve(each))
            except RateLimited:
                got.append(False)
            else:
                got.append(True)
                tasks.append(asyncio.create_task(places[-1].__aenter__()))
                await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.waiting, admission._waiting_later) == (0, 0)
        return got

    got = simulate(admitted(50))
    assert got == simulate(admitted(3))
    assert got[:2] == [True, True], "one runs in the place that was left, another waits"
    assert not got[-1]


def test_weights_are_shares() -> None:
    async def run() -> dict[str, float]:
        admission = Admission("m", max_running=4, max_waiting=5000)
        served = {"one": 0.0, "three": 0.0}

        async def one(principal: Principal) -> None:
            async with admission.reserve(principal, prompt=10) as _:
                served[principal.name] += 1
                await asyncio.sleep(1)

        weighted = [Principal(name="one", weight=1.0), Principal(name="three", weight=3.0)]
        tasks = [asyncio.create_task(one(each)) for _ in range(1000) for each in weighted]
        await asyncio.sleep(100.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.running, admission.waiting) == (0, 0)
        return served

    served = simulate(run())
    assert served["three"] / served["one"] == pytest.approx(3, rel=0.1)
    assert sum(served.values()) == pytest.approx(404, abs=8), "no slot was idle"


@given(
    seed=st.integers(0, 10_000),
    max_running=st.integers(1, 5),
    scheduling=st.sampled_from(["fair", "fifo"]),
)
def test_slots_are_never_idle_nor_lost_whoever_leaves_when(
    seed: int, max_running: int, scheduling: Literal["fair", "fifo"]
) -> None:
    async def run() -> None:
        chance = random.Random(seed)
        admission = Admission("m", max_running=max_running, max_waiting=1000, scheduling=scheduling)
        tasks = []
        for _ in range(60):
            principal = chance.choice([None, ADA, BOB])
            priority = chance.choice([0, 0, 100])
            tasks.append(
                asyncio.create_task(
                    work_of(admission, principal, chance.random() * 3, priority=priority)
                )
            )
            if chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.3)
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            assert admission.running <= max_running
            if admission._queue:
                assert admission.running == max_running, "work-conserving"
            if admission._later:
                assert admission.running >= admission._most_later, "work-conserving"
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (admission.running, admission.waiting) == (0, 0)
        assert not admission._queue
        assert not admission._later
        assert not admission._waiting_of
        assert admission._waiting_later == 0

    simulate(run())


def test_a_reservation_is_used_once() -> None:
    async def run() -> None:
        admission = Admission("m", max_running=1, max_waiting=1)
        place = admission.reserve()
        async with place:
            pass
        place.cancel()
        with pytest.raises(RuntimeError):
            await place.__aenter__()
        other = admission.reserve()
        other.cancel()
        other.cancel()
        other.used(5, 5)
        assert (admission.running, admission.waiting) == (0, 0)

    simulate(run())
