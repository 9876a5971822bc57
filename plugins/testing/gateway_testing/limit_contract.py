"""The contract of stores that count requests against limits."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest

from gateway.plugins.protocols import LimitCounters, LimitState, PrincipalLimits, SettledRequest
from gateway_testing.on_asyncio import OnAsyncio


@pytest.mark.anyio
class LimitCountersContract(OnAsyncio):
    """Subclass this and provide a fixture `limits_store` that returns the store."""

    @pytest.fixture
    def limits_store(self) -> LimitCounters:
        """The store to test."""
        raise NotImplementedError("give a fixture limits_store")

    async def test_requests_up_to_the_limit_are_admitted(self, limits_store: LimitCounters) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(requests_per_minute=3))
        assert [await admitted.refusal() for _ in range(3)] == [None] * 3
        refused = await admitted.state()
        assert refused.refused == "requests"
        assert 0 < refused.retry_after <= 20
        assert 2 < refused.requests <= 3

    async def test_as_many_of_many_at_once_are_admitted_as_the_limit_says(
        self, limits_store: LimitCounters
    ) -> None:
        limits = PrincipalLimits(tokens_per_day=70, max_concurrent_requests=50)
        admitted = _Admissions(limits_store, limits)
        refusals = await asyncio.gather(*(admitted.refusal(10) for _ in range(60)))
        assert refusals.count(None) == 7
        limits = PrincipalLimits(tokens_per_day=10**9, max_concurrent_requests=50)
        admitted = _Admissions(limits_store, limits)
        refusals = await asyncio.gather(*(admitted.refusal(10) for _ in range(60)))
        assert refusals.count(None) == 50

    async def test_tokens_are_counted_when_a_request_begins(
        self, limits_store: LimitCounters
    ) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(tokens_per_minute=1000))
        assert await admitted.refusal(600) is None
        refused = await admitted.state(600)
        assert refused.refused == "tokens"
        assert 0 < refused.retry_after <= 12
        assert await admitted.refusal(400) is None

    async def test_what_was_not_used_is_given_back(self, limits_store: LimitCounters) -> None:
        limits = PrincipalLimits(tokens_per_minute=1000, tokens_per_day=5000)
        admitted = _Admissions(limits_store, limits)
        assert await admitted.refusal(1000) is None
        assert await admitted.refusal(1000) == "tokens"
        await admitted.settle(0, used=10)
        assert await admitted.refusal(900) is None

    async def test_what_was_used_beyond_the_reservation_is_a_debt(
        self, limits_store: LimitCounters
    ) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(tokens_per_minute=100))
        assert await admitted.refusal(1) is None
        await admitted.settle(0, used=1000)
        refused = await admitted.state(1)
        assert refused.refused == "tokens"
        assert refused.retry_after > 400

    async def test_a_request_is_settled_once(self, limits_store: LimitCounters) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(tokens_per_day=1000))
        assert await admitted.refusal(100) is None
        for _ in range(5):
            await admitted.settle(0, used=300)
        assert await admitted.refusal(700) is None
        assert await admitted.refusal(1) == "day"

    async def test_a_request_is_admitted_once(self, limits_store: LimitCounters) -> None:
        """A repeated request is admitted and not counted again, because the first answer may have been lost."""
        limits, name = PrincipalLimits(requests_per_minute=1), uuid.uuid4().hex
        for _ in range(3):
            state = await limits_store.admit_request(name, "same", limits, tokens=1, seconds=60)
            assert state.refused is None

    async def test_the_tokens_of_a_day_are_bounded(self, limits_store: LimitCounters) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(tokens_per_day=500))
        assert await admitted.refusal(400) is None
        refused = await admitted.state(101)
        assert refused.refused == "day"
        assert 0 < refused.retry_after <= 86_400
        assert await admitted.refusal(100) is None

    async def test_running_requests_are_bounded_until_they_end(
        self, limits_store: LimitCounters
    ) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(max_concurrent_requests=2))
        assert await admitted.refusal() is None
        assert await admitted.refusal() is None
        assert await admitted.refusal() == "concurrent"
        await admitted.settle(1, used=5)
        assert await admitted.refusal() is None
        assert await admitted.refusal() == "concurrent"

    async def test_requests_of_a_process_that_died_are_forgotten(
        self, limits_store: LimitCounters
    ) -> None:
        seconds = 0.3
        while True:
            began = time.monotonic()
            admitted = _Admissions(limits_store, PrincipalLimits(max_concurrent_requests=2))
            assert await admitted.refusal(seconds=seconds) is None
            assert await admitted.refusal(seconds=seconds) is None
            await limits_store.renew_requests([(admitted.name, admitted.ids[1])], seconds=60)
            if time.monotonic() - began < seconds * 0.8:
                break  # it was renewed in time; otherwise everything is repeated with more time
            seconds *= 2
        await asyncio.sleep(seconds + 0.2)
        assert await admitted.refusal() is None
        assert await admitted.refusal() == "concurrent"

    async def test_renewing_does_not_revive_what_has_ended(
        self, limits_store: LimitCounters
    ) -> None:
        admitted = _Admissions(limits_store, PrincipalLimits(max_concurrent_requests=1))
        assert await admitted.refusal() is None
        await admitted.settle(0, used=1)
        await limits_store.renew_requests([(admitted.name, admitted.ids[0])], seconds=60)
        assert await admitted.refusal() is None

    async def test_a_refused_request_counts_nothing(self, limits_store: LimitCounters) -> None:
        limits = PrincipalLimits(
            requests_per_minute=100, tokens_per_day=100, max_concurrent_requests=3
        )
        admitted = _Admissions(limits_store, limits)
        for _ in range(20):
            assert await admitted.refusal(101) == "day"
        assert [await admitted.refusal(50) for _ in range(2)] == [None] * 2
        assert (await admitted.state(1)).refused == "day"

    async def test_principals_do_not_share_their_limits(self, limits_store: LimitCounters) -> None:
        limits = PrincipalLimits(requests_per_minute=1, tokens_per_day=10)
        for suffix in ("", ":x", "}", "{", "*", "ä"):
            admitted = _Admissions(limits_store, limits, suffix)
            assert await admitted.refusal(10) is None
            assert await admitted.refusal(10) is not None


class _Admissions:
    """Admissions of one principal."""

    def __init__(self, store: LimitCounters, limits: PrincipalLimits, suffix: str = "") -> None:
        self.name = uuid.uuid4().hex + suffix
        self.ids: list[str] = []
        """The ids of the admitted requests."""
        self._store = store
        self._limits = limits
        self._reserved: list[tuple[int, int]] = []

    async def state(self, tokens: int = 1, *, seconds: float = 60.0) -> LimitState:
        request_id = uuid.uuid4().hex
        state = await self._store.admit_request(
            self.name, request_id, self._limits, tokens=tokens, seconds=seconds
        )
        if state.refused is None:
            self.ids.append(request_id)
            self._reserved.append((tokens, state.day))
        return state

    async def refusal(self, tokens: int = 1, *, seconds: float = 60.0) -> str | None:
        return (await self.state(tokens, seconds=seconds)).refused

    async def settle(self, index: int, *, used: int) -> None:
        reserved, day = self._reserved[index]
        ended = SettledRequest(
            principal=self.name,
            request_id=self.ids[index],
            limits=self._limits,
            reserved=reserved,
            used=used,
            day=day,
        )
        await self._store.settle_requests([ended])
