from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from msgspec import Struct
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.access.admission import Admission
from gateway.config import Config, ModelConfig
from gateway.observe.metrics import Metrics
from gateway.plugins.loading import load_plugins
from gateway.startup.service_opening import open_services

pytestmark = pytest.mark.anyio


class Sample(Struct, frozen=True):
    name: str
    kind: str
    help: str
    labels: dict[str, str]
    value: float


class Measured:
    def __init__(self, value: float) -> None:
        self._value = value

    def metrics(self) -> list[Sample]:
        return [
            Sample("replica_up", "gauge", "Whether it answers.", {"replica": "a"}, self._value),
            Sample("replica_requests", "counter", "Requests.", {"replica": "a"}, 3),
        ]


def test_engines_of_several_models_share_their_families() -> None:
    metrics = Metrics()
    metrics.watch_engine("one", Measured(1))  # type: ignore[arg-type]
    metrics.watch_engine("two", Measured(0))  # type: ignore[arg-type]
    shown = metrics.exposition()[0].decode()
    assert shown.count("# TYPE replica_up gauge") == 1
    assert 'replica_up{model="one",replica="a"} 1.0' in shown
    assert 'replica_up{model="two",replica="a"} 0.0' in shown
    assert 'replica_requests_total{model="two",replica="a"} 3.0' in shown


def test_running_and_waiting_are_asked_at_each_scrape() -> None:
    metrics = Metrics()
    admission = Admission("m", max_running=1, max_waiting=2)
    metrics.watch_model("m", admission)
    assert 'gateway_waiting_requests{model="m"} 0.0' in metrics.exposition()[0].decode()
    place = admission.reserve()
    assert 'gateway_waiting_requests{model="m"} 1.0' in metrics.exposition()[0].decode()
    place.cancel()
    place.cancel()
    assert 'gateway_waiting_requests{model="m"} 0.0' in metrics.exposition()[0].decode()


def test_requests_are_shown_at_the_next_scrape_and_counted_once() -> None:
    metrics = Metrics()
    for seen in (2, 4):
        metrics.request_answered("/v1/responses", 200)
        metrics.request_answered("/v1/responses", 200)
        for _ in range(2):  # another scrape adds nothing
            shown = metrics.exposition()[0].decode()
            assert f'gateway_requests_total{{route="/v1/responses",status="200"}} {seen}.0' in shown


class Histogram:
    def metrics(self) -> list[Sample]:
        parts = (("bucket", {"le": "+Inf"}), ("count", {}), ("sum", {}))
        return [
            Sample(f"latency_{part}", "histogram", "Latency.", labels, 2) for part, labels in parts
        ]


def test_the_parts_of_an_engine_s_histogram_are_one_family() -> None:
    metrics = Metrics()
    metrics.watch_engine("m", Histogram())  # type: ignore[arg-type]
    shown = metrics.exposition()[0].decode()
    assert shown.count("# TYPE latency histogram") == 1
    assert 'latency_bucket{le="+Inf",model="m"} 2.0' in shown
    assert 'latency_count{model="m"} 2.0' in shown


class Refreshed:
    def __init__(self, refresh: Callable[[], Awaitable[None]]) -> None:
        self.refresh_metrics = refresh

    def metrics(self) -> list[Sample]:
        return [Sample("slots", "gauge", "Slots.", {}, 4)]


async def test_a_scrape_does_not_wait_for_an_engine_that_hangs_or_fail_with_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise OSError("gone")

    monkeypatch.setattr("gateway.observe.metrics.REFRESH_SECONDS", 0.01)
    metrics = Metrics()
    metrics.watch_engine("hangs", Refreshed(asyncio.Event().wait))  # type: ignore[arg-type]
    metrics.watch_engine("fails", Refreshed(fail))  # type: ignore[arg-type]
    shown = (await metrics.scrape())[0].decode()
    assert "could not be read" in caplog.text
    assert 'slots{model="hangs"} 4.0' in shown
    assert 'slots{model="fails"} 4.0' in shown


async def test_scrapes_do_not_wait_for_each_others_engines() -> None:
    metrics, asked, all_asked = Metrics(), 0, asyncio.Event()

    async def refresh() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            all_asked.set()
        try:
            await all_asked.wait()
        finally:
            asked -= 1

    metrics.watch_engine("m", Refreshed(refresh))  # type: ignore[arg-type]
    await asyncio.gather(*(metrics.scrape() for _ in range(3)))
    assert all_asked.is_set(), "no three scrapes waited at once"


class Witness(Collector):
    """Notes the threads in which it is asked as a collector, and as an engine."""

    def __init__(self) -> None:
        self.collected: set[int] = set()
        self.asked: set[int] = set()

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        self.collected.add(threading.get_ident())
        return []

    def metrics(self) -> list[Sample]:
        self.asked.add(threading.get_ident())
        return [Sample("slots", "gauge", "Slots.", {}, 4)]


async def test_a_scrape_is_written_beside_the_event_loop_and_engines_are_asked_on_it() -> None:
    metrics, witness = Metrics(), Witness()
    metrics.registry.register(witness)
    metrics.watch_engine("m", witness)  # type: ignore[arg-type]
    for made in await asyncio.gather(*(metrics.scrape() for _ in range(3))):
        assert b'slots{model="m"} 4.0' in made[0]
    assert witness.asked == {threading.get_ident()}
    assert witness.collected
    assert threading.get_ident() not in witness.collected


async def test_what_is_counted_while_services_close_is_not_lost() -> None:
    """Nobody asks this process again: other workers show what it has counted."""
    async with AsyncExitStack() as stack:
        config = Config(models={"m": ModelConfig(engine="scripted")})
        metrics = (await open_services(config, load_plugins(), stack)).metrics
        stack.callback(metrics.request_answered, "/v1/responses", 200)
    counted = metrics.registry.get_sample_value(
        "gateway_requests_total", {"route": "/v1/responses", "status": "200"}
    )
    assert counted == 1
