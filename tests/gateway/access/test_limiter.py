"""The limiter: headers, and what happens if the store does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

import pytest

from gateway.access.limiter import Limiter, duration
from gateway.base.errors import RequestLimitReached, StoreUnavailable, TokenLimitReached
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import LimitState, Principal, PrincipalLimits, SettledRequest
from gateway.storage.limit_table import LimitTable
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

ADA = Principal(name="ada", limits=PrincipalLimits(requests_per_minute=3, tokens_per_minute=600))


class Hung(LimitTable):
    """Counters that do not answer while they hang."""

    hangs = False
    asked = 0

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return await super().admit_request(
            principal, request_id, limits, tokens=tokens, seconds=seconds
        )

    async def settle_requests(self, ended: Sequence[SettledRequest]) -> None:
        if self.hangs:
            raise StoreUnavailable("The store is away.")
        await super().settle_requests(ended)


class Unanswered(LimitTable):
    """Counters that count a request, and whose answer does not arrive."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.counted = asyncio.Event()

    async def admit_request(
        self,
        principal: str,
        request_id: str,
        limits: PrincipalLimits,
        *,
        tokens: int,
        seconds: float,
    ) -> LimitState:
        await super().admit_request(principal, request_id, limits, tokens=tokens, seconds=seconds)
        self.counted.set()
        if self.fails:
            raise StoreUnavailable("The connection broke.")
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("why", ["the client leaves", "the store fails", "the store is slow"])
async def test_a_request_whose_admission_is_not_answered_is_counted_no_longer(why: str) -> None:
    principal = Principal(
        name="ada", limits=PrincipalLimits(tokens_per_day=1000, max_concurrent_requests=1)
    )
    counters = Unanswered(fails=why == "the store fails")
    limiter = Limiter(counters, timeout=0.05 if why == "the store is slow" else 600.0)
    async with limiter.maintenance():
        admission = asyncio.create_task(limiter.admit(principal, prompt=500, output=400))
        await counters.counted.wait()
        if why == "the client leaves":
            admission.cancel()
        with pytest.raises((StoreUnavailable, asyncio.CancelledError)):
            await admission
        held = counters._principals["ada"]
        await wait_until_async(lambda: not held.running)
    assert held.day_tokens == 0


async def test_headers_are_those_of_openai() -> None:
    limiter, caller = Limiter(None), RequestContext("req_1", principal=ADA)
    with within(caller):
        await limiter.admit(ADA, prompt=50, output=10)
    headers = {name.decode(): value.decode() for name, value in caller.limit_headers}
    assert headers == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "2",
        "x-ratelimit-reset-requests": "20s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "540",
        "x-ratelimit-reset-tokens": "6s",
    }


async def test_a_key_that_is_refused_is_refused_before_its_next_request_is_prepared() -> None:
    counters = Hung()
    limiter, caller = Limiter(counters), RequestContext("req_1", principal=ADA)
    with within(caller):
        for _ in range(3):
            await limiter.admit(ADA, prompt=1, output=1)
        with pytest.raises(RequestLimitReached):
            await limiter.admit(ADA, prompt=1, output=1)
        asked = counters.asked
        with pytest.raises(RequestLimitReached, match="Limit 3") as refusal:
            limiter.prepare(ADA)
    assert 0 < int(dict(refusal.value.headers)["retry-after"]) <= 20
    assert counters.asked == asked
    # Another limit, or another key, is another question.
    more = PrincipalLimits(requests_per_minute=300)
    assert limiter.prepare(Principal(name="ada", limits=more)) is not None
    assert limiter.prepare(Principal(name="bob", limits=ADA.limits)) is not None
    assert limiter.prepare(Principal(name="eve")) is None


@pytest.mark.parametrize(
    ("limits", "many"),
    [
        (PrincipalLimits(requests_per_minute=3), 3),
        (PrincipalLimits(requests_per_minute=3, max_concurrent_requests=2), 2),
        (PrincipalLimits(tokens_per_minute=3), 50),
    ],
)
async def test_no_more_requests_are_prepared_at_once_than_a_key_may_send(
    limits: PrincipalLimits, many: int
) -> None:
    limiter, ada = Limiter(None), Principal(name="ada", limits=limits)
    prepared = [limiter.prepare(ada) for _ in range(many)]
    if limits.tokens_per_minute is None:
        with pytest.raises(RequestLimitReached, match="being prepared"):
            limiter.prepare(ada)
    for each in prepared:
        assert each is not None
        each.end()
    assert limiter.prepare(ada) is not None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0173, "18ms"), (1.5, "1.5s"), (59.9994, "59.999s"), (60, "1m0s"), (359.2, "6m0s"), (3723, "1h2m3s")],
)  # fmt: skip
def test_durations_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


async def test_without_limits_nothing_is_counted() -> None:
    limiter = Limiter(Hung())
    assert await limiter.admit(None, prompt=5, output=5) is None
    assert await limiter.admit(Principal(name="bob"), prompt=5, output=5) is None


async def test_a_prompt_above_the_limit_is_refused_for_good() -> None:
    limiter = Limiter(None)
    with pytest.raises(TokenLimitReached, match="too large"):
        await limiter.admit(ADA, prompt=601, output=0)
    # What it may generate beyond the limit does not matter until it is used.
    assert await limiter.admit(ADA, prompt=10, output=100_000) is not None


async def test_a_hung_store_refuses_in_time_and_once_a_second_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters = Hung()
    limiter = Limiter(counters, timeout=0.05)
    counters.hangs = True
    with caplog.at_level(logging.WARNING, "gateway.access.limiter"):
        for _ in range(10):
            with pytest.raises(StoreUnavailable):
                await limiter.admit(ADA, prompt=1, output=0)
    assert counters.asked <= 2, "the first attempt, and another one on a very slow machine"
    assert len(caplog.records) == 1
    assert "refused with 503" in caplog.text


async def test_a_hung_store_may_leave_counting_to_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters = Hung()
    limiter = Limiter(counters, timeout=0.05, unavailable="count_here")
    counters.hangs = True
    with caplog.at_level(logging.WARNING, "gateway.access.limiter"):
        for _ in range(3):
            assert await limiter.admit(ADA, prompt=1, output=0) is not None
        with pytest.raises(Exception, match="requests per min"):
            await limiter.admit(ADA, prompt=1, output=0)
    assert "by this process alone" in caplog.text


async def test_it_goes_back_to_the_store_when_it_answers() -> None:
    counters = Hung()
    limiter = Limiter(counters, timeout=0.05)
    counters.hangs = True
    with pytest.raises(StoreUnavailable):
        await limiter.admit(ADA, prompt=1, output=0)
    counters.hangs = False
    give_up = time.monotonic() + 60
    while True:
        try:
            charge = await limiter.admit(ADA, prompt=1, output=0)
        except StoreUnavailable:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.05)
        else:
            assert charge is not None
            return


async def test_ended_requests_are_settled_in_the_background() -> None:
    one = Principal(name="one", limits=PrincipalLimits(max_concurrent_requests=1))
    counters = LimitTable()
    limiter = Limiter(counters)
    async with limiter.maintenance():
        for _ in range(20):
            charge = await limiter.admit(one, prompt=1, output=1)
            assert charge is not None
            limiter.settle(charge, 2)
            limiter.settle(charge, 2)
            give_up = time.monotonic() + 60
            while counters._principals["one"].running:
                assert time.monotonic() < give_up
                await asyncio.sleep(0)


async def test_what_has_ended_is_settled_at_the_shutdown() -> None:
    one = Principal(name="one", limits=PrincipalLimits(max_concurrent_requests=1))
    counters = LimitTable()
    limiter = Limiter(counters)
    async with limiter.maintenance():
        charge = await limiter.admit(one, prompt=1, output=1)
        assert charge is not None
        limiter.settle(charge, 2)
    assert not counters._principals["one"].running
