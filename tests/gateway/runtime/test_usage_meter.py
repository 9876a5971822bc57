"""Counting usage: what a server elsewhere makes up is bounded."""

from __future__ import annotations

import pytest

from gateway.request_stats import RunStats
from gateway.runtime.usage_meter import UsageMeter
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
