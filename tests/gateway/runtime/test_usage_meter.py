"""Counting usage: what a server elsewhere makes up is bounded."""

from __future__ import annotations

import pytest

from gateway.protocols import Principal
from gateway.request_stats import RunStats
from gateway.runtime import usage_meter
from gateway.runtime.usage_meter import OTHERS, UsageMeter
from gateway.wire.response import InputTokensDetails, OutputTokensDetails, Usage

DAY = 86_400


def run(input_tokens: int, output_tokens: int) -> RunStats:
    stats = RunStats("responses")
    stats.model = "m"
    stats.usage = Usage(
        input_tokens=input_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=0),
        output_tokens=output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=-5),
        total_tokens=0,
    )
    return stats


@pytest.mark.anyio
async def test_absurd_numbers_do_not_keep_the_others_from_being_counted() -> None:
    meter = UsageMeter(None, clock=lambda: 20_000 * DAY)
    for _ in range(3):
        meter.run_finished(run(10**30, -7), None)
    [count] = await meter.read(20_000, 20_000)
    assert (count.requests, count.output_tokens, count.reasoning_tokens) == (3, 0, 0)
    assert 0 < count.input_tokens <= 3 << 40


@pytest.mark.anyio
async def test_principals_that_an_authenticator_makes_up_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond a number for each day. Keys go on to be counted by their names."""
    monkeypatch.setattr(usage_meter, "MOST_NAMES", 100)
    now = [20_000.0 * DAY]
    meter = UsageMeter(None, is_key=lambda name: name == "key", clock=lambda: now[0])
    for number in range(5000):
        meter.run_finished(run(1, 1), Principal(name=f"made-up-{number}"))
    meter.run_finished(run(1, 1), Principal(name="key"))
    meter.run_finished(run(1, 1), Principal(name="made-up-7"))
    counts = {each.principal: each.requests for each in await meter.read(20_000, 20_000)}
    assert len(counts) == 102
    assert (counts[OTHERS], counts["key"], counts["made-up-7"]) == (4900, 1, 2)
    now[0] += DAY
    meter.run_finished(run(1, 1), Principal(name="made-up-4000"))
    [count] = await meter.read(20_001, 20_001)
    assert count.principal == "made-up-4000"
