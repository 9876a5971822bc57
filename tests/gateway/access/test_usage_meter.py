"""Counting usage: what a server elsewhere makes up is bounded."""

from __future__ import annotations

import pytest

from gateway.access import usage_meter
from gateway.access.usage_meter import OTHERS, UsageMeter
from gateway.observe.run_stats import RunStats
from gateway.plugins.protocols import WIDTH_SECONDS, Principal, UsageCount, UsageWidth
from gateway.storage import usage_table
from gateway.storage.usage_table import UsageTable
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
    monkeypatch.setattr(usage_meter, "MAX_NAMES", 100)
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


@pytest.mark.anyio
async def test_the_sums_of_minutes_are_those_of_their_hours_and_days() -> None:
    now = [20_000.0 * DAY]
    meter = UsageMeter(None, clock=lambda: now[0])
    for _ in range(100):
        meter.run_finished(run(7, 3), None)
        now[0] += 50
    for width, seconds in WIDTH_SECONDS.items():
        first = 20_000 * DAY // seconds
        counts = await meter.read(first, first + DAY // seconds, width=width)
        assert sum(each.requests for each in counts) == 100
        assert sum(each.input_tokens for each in counts) == 700
        assert len(counts) == len({number * 50 // seconds for number in range(100)})


@pytest.mark.anyio
async def test_a_process_forgets_the_oldest_minutes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_table, "MAX_COUNTS", 100)
    table = UsageTable()
    for minute in range(1000):
        count = UsageCount(width="1m", bucket=minute, api="chat", principal=None, model="m")
        await table.add_usage(str(minute), [count])
    await table.add_usage("day", [UsageCount(bucket=1, api="chat", principal=None, model="m")])
    kept = [each.bucket for each in await table.read_usage(0, 1000, width="1m")]
    assert kept == [*range(900, 1000)]
    assert len(await table.read_usage(0, 1000)) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("width", WIDTH_SECONDS)
async def test_a_clock_that_was_far_ahead_does_not_end_the_counting(width: UsageWidth) -> None:
    table = UsageTable()
    for number, bucket in enumerate((20_000, 9_000_000, 20_001, 20_001, 20_002)):
        count = UsageCount(
            width=width, bucket=bucket, api="chat", principal=None, model="m", requests=1
        )
        await table.add_usage(f"batch {number}", [count])
    counts = await table.read_usage(20_001, 20_002, width=width)
    assert sorted((each.bucket, each.requests) for each in counts) == [(20_001, 2), (20_002, 1)]
