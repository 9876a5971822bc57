"""Counters of limits within one process: the contract, and how buckets are regained."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.plugins.protocols import PrincipalLimits, SettledRequest
from gateway.storage.limit_table import DAY_SECONDS, LimitTable
from gateway_testing import LimitCountersContract
from tests.clock import Clock

NOW = 20_000 * DAY_SECONDS + 1.0


class TestLimitTable(LimitCountersContract):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def limits_store(self) -> LimitTable:
        return LimitTable()


@given(
    limit=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=200),
)
def test_no_more_is_admitted_than_the_limit_and_what_was_regained(
    limit: int, gaps: list[float]
) -> None:
    clock = Clock(NOW)
    table = LimitTable(clock)
    began, admitted = clock.now, 0
    for number, gap in enumerate(gaps):
        clock.now += gap
        state = asyncio.run(
            _admit(table, str(number), PrincipalLimits(requests_per_minute=limit), 1)
        )
        if state is None:
            admitted += 1
        assert admitted <= limit + (clock.now - began) * limit / 60 + 1e-3


@given(
    limit=st.integers(1, 1000),
    requests=st.lists(
        st.tuples(st.integers(1, 1000), st.integers(0, 3000), st.floats(0, 60)), max_size=60
    ),
)
def test_used_tokens_stay_within_the_limit_but_for_the_last_request(
    limit: int, requests: list[tuple[int, int, float]]
) -> None:
    """Requests one after the other: what is used beyond a reservation is paid back before the next one."""
    clock = Clock(NOW)
    table, limits = LimitTable(clock), PrincipalLimits(tokens_per_minute=limit)
    began, used_before = clock.now, 0
    for number, (wanted, used, gap) in enumerate(requests):
        clock.now += gap
        reserved = min(wanted, limit)
        if asyncio.run(_admit(table, str(number), limits, reserved)) is None:
            assert used_before <= limit + (clock.now - began) * limit / 60 + 1e-3
            asyncio.run(_settle(table, str(number), limits, reserved, used, clock))
            used_before += used


def test_a_day_begins_anew_at_midnight() -> None:
    clock = Clock(NOW + DAY_SECONDS - 11.0)
    table, limits = LimitTable(clock), PrincipalLimits(tokens_per_day=10)
    assert asyncio.run(_admit(table, "a", limits, 10)) is None
    assert asyncio.run(_admit(table, "b", limits, 10)) == "day"
    clock.now += 11
    asyncio.run(_settle(table, "a", limits, 10, 500, clock, day=20_000))  # of yesterday
    assert asyncio.run(_admit(table, "c", limits, 10)) is None


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    clock = Clock(NOW)
    table, limits = LimitTable(clock), PrincipalLimits(requests_per_minute=1, tokens_per_minute=5)
    assert asyncio.run(_admit(table, "a", limits, 5)) is None
    clock.now -= 3600
    assert asyncio.run(_admit(table, "b", limits, 5)) is not None
    clock.now += 60
    assert asyncio.run(_admit(table, "c", limits, 5)) is None


def test_clocks_that_differ_a_little_regain_nothing_twice() -> None:
    clock = Clock(NOW)
    table, limits = LimitTable(clock), PrincipalLimits(requests_per_minute=60)
    for number in range(60):
        assert asyncio.run(_admit(table, str(number), limits, 1)) is None
    for number in range(100):
        clock.now += 0.5 if number % 2 else -0.5
        assert asyncio.run(_admit(table, f"more{number}", limits, 1)) == "requests"


def test_principals_that_are_gone_are_forgotten() -> None:
    clock = Clock(NOW)
    table = LimitTable(clock)

    async def many(prefix: str) -> None:
        for number in range(1100):
            name = f"{prefix}{number}"
            limits = PrincipalLimits(requests_per_minute=5)
            state = await table.admit_request(name, "r", limits, tokens=1, seconds=60)
            ended = SettledRequest(
                principal=name, request_id="r", limits=limits, reserved=1, used=1, day=state.day
            )
            await table.settle_requests([ended])

    asyncio.run(many("a"))
    clock.now += 3 * DAY_SECONDS
    for turn in range(4):
        asyncio.run(many(f"b{turn}-"))
        clock.now += 3 * DAY_SECONDS
    assert len(table._principals) < 3000


async def _admit(
    table: LimitTable, request_id: str, limits: PrincipalLimits, tokens: int
) -> str | None:
    state = await table.admit_request("p", request_id, limits, tokens=tokens, seconds=60)
    return state.refused


async def _settle(
    table: LimitTable, request_id: str, limits: PrincipalLimits, reserved: int, used: int, clock: Clock, *, day: int | None = None
) -> None:  # fmt: skip
    ended = SettledRequest(
        principal="p",
        request_id=request_id,
        limits=limits,
        reserved=reserved,
        used=used,
        day=int(clock.now // DAY_SECONDS) if day is None else day,
    )
    await table.settle_requests([ended])
