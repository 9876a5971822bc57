"""The contract of stores that count usage."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest
from msgspec import structs

from gateway.plugins.protocols import (
    BUCKETS_KEPT,
    WIDTH_SECONDS,
    UsageCount,
    UsageCounters,
    UsageWidth,
)
from gateway_testing.on_asyncio import OnAsyncio

_DAY = int(time.time() // 86_400) - 30
"""A day for which stores keep the usage."""
_WIDTHS: tuple[UsageWidth, ...] = ("1m", "1h", "1d")


@pytest.mark.anyio
class UsageCountersContract(OnAsyncio):
    """Subclass this and provide a fixture `usage_store` that returns the store."""

    @pytest.fixture
    def usage_store(self) -> UsageCounters:
        """The store to test."""
        raise NotImplementedError("give a fixture usage_store")

    async def test_counts_are_added_per_day_api_principal_and_model(
        self, usage_store: UsageCounters
    ) -> None:
        name = uuid.uuid4().hex
        base = _count(name)
        kinds = [
            base,
            _count(name, day=_DAY + 1),
            _count(name, api="embeddings"),
            _count(f'{name} "ü:{{}}'),
            _count(name, model="m/2 :x"),
        ]
        for _ in range(3):
            await usage_store.add_usage(uuid.uuid4().hex, kinds)
        found = [
            each
            for each in await usage_store.read_usage(_DAY, _DAY + 1)
            if (each.principal or "").startswith(name)
        ]
        assert len(found) == len(kinds)
        for each in found:
            assert (each.requests, each.input_tokens, each.cached_tokens) == (3, 30, 6)
            assert (each.output_tokens, each.reasoning_tokens) == (15, 3)
        assert {(each.bucket, each.api, each.principal, each.model) for each in found} == {
            (each.bucket, each.api, each.principal, each.model) for each in kinds
        }

    async def test_a_batch_is_added_once(self, usage_store: UsageCounters) -> None:
        """A batch may be sent again, because the first answer may have been lost."""
        name, batch = uuid.uuid4().hex, uuid.uuid4().hex
        for _ in range(3):
            await usage_store.add_usage(batch, [_count(name)])
        [found] = [
            each for each in await usage_store.read_usage(_DAY, _DAY) if each.principal == name
        ]
        assert found.requests == 1

    async def test_concurrent_batches_are_all_added(self, usage_store: UsageCounters) -> None:
        name = uuid.uuid4().hex
        await asyncio.gather(
            *(usage_store.add_usage(uuid.uuid4().hex, [_count(name)]) for _ in range(50))
        )
        [found] = [
            each for each in await usage_store.read_usage(_DAY, _DAY) if each.principal == name
        ]
        assert found.requests == 50

    async def test_nobody_is_not_one_without_a_name(self, usage_store: UsageCounters) -> None:
        model = uuid.uuid4().hex
        await usage_store.add_usage(
            uuid.uuid4().hex, [_count(None, model=model), _count("", model=model)]
        )
        found = [each for each in await usage_store.read_usage(_DAY, _DAY) if each.model == model]
        assert {each.principal for each in found} == {None, ""}

    async def test_days_that_were_not_asked_for_are_left_out(
        self, usage_store: UsageCounters
    ) -> None:
        name = uuid.uuid4().hex
        days = [_count(name, day=day) for day in (_DAY, _DAY + 5, _DAY + 10)]
        await usage_store.add_usage(uuid.uuid4().hex, days)
        found = await usage_store.read_usage(_DAY + 1, _DAY + 9)
        assert [each.bucket for each in found if each.principal == name] == [_DAY + 5]

    async def test_minutes_hours_and_days_are_counted_apart(
        self, usage_store: UsageCounters
    ) -> None:
        """This also holds if their numbers are the same, and within one batch."""
        name, now = uuid.uuid4().hex, time.time()
        latest = {width: int(now // WIDTH_SECONDS[width]) for width in _WIDTHS}
        counts = [
            structs.replace(_count(name, day=bucket), width=width)
            for width in _WIDTHS
            for bucket in {*latest.values()}
            if bucket <= latest[width]
        ]
        for _ in range(2):
            await usage_store.add_usage(uuid.uuid4().hex, counts)
        for width, bucket in latest.items():
            found = await usage_store.read_usage(bucket, bucket, width=width)
            [each] = [each for each in found if each.principal == name]
            assert (each.width, each.bucket, each.requests) == (width, bucket, 2)

    async def test_what_is_to_be_kept_is_kept(self, usage_store: UsageCounters) -> None:
        name, now = uuid.uuid4().hex, time.time()
        for width in _WIDTHS:
            latest = int(now // WIDTH_SECONDS[width])
            oldest = latest - BUCKETS_KEPT[width] + 1
            for bucket in (oldest, latest):
                count = structs.replace(_count(name, day=bucket), width=width)
                await usage_store.add_usage(uuid.uuid4().hex, [count])
            found = await usage_store.read_usage(oldest, oldest, width=width)
            assert [each.requests for each in found if each.principal == name] == [1]

    async def test_names_may_be_any_text(self, usage_store: UsageCounters) -> None:
        name = uuid.uuid4().hex
        names = [name + end for end in ("\x00", "\n", "é🦜", "'; --", "x" * 5000, "x" * 5001)]
        for _ in range(2):
            await usage_store.add_usage(
                uuid.uuid4().hex, [_count(each, model=each) for each in names]
            )
        found = [
            each
            for each in await usage_store.read_usage(_DAY, _DAY)
            if (each.principal or "").startswith(name)
        ]
        assert sorted(each.model for each in found) == sorted(names)
        assert all(each.principal == each.model and each.requests == 2 for each in found)


def _count(
    principal: str | None, *, day: int = _DAY, api: str = "chat", model: str = "m"
) -> UsageCount:
    return UsageCount(
        bucket=day,
        api=api,
        principal=principal,
        model=model,
        requests=1,
        input_tokens=10,
        cached_tokens=2,
        output_tokens=5,
        reasoning_tokens=1,
    )
