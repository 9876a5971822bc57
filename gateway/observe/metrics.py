"""Prometheus metrics of the server. Nothing here is called per token."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Protocol, TypeAlias

from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from gateway.observe.light_histograms import LightHistogram, LightSeries
from gateway.observe.run_stats import RunStats
from gateway.plugins.protocols import MeasuredEngine, RefreshedEngine
from gateway.wire.response import ResponseStatus, Usage

logger = logging.getLogger("gateway.observe.metrics")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
# The bounds are those of vLLM's histograms of the same names, so that both can be shown in one graph.
_FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
_PER_TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
_LATENCY_SECONDS = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
_TOKENS = (*(step * 10**power for power in range(6) for step in (1, 2, 5)), 1_000_000)
_MAX_ENDED = 64
"""Maximum number of runs that have ended and are not counted yet."""
_MAX_ID_LENGTH = 100
"""Maximum characters of a request id in an exemplar. OpenMetrics limits an exemplar's labels to 128 in total."""


class BackgroundCounts(Protocol):
    """Background responses of this process, as `Metrics.watch_background` reports them."""

    @property
    def queued(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def followers(self) -> int: ...

    @property
    def lag(self) -> int:
        """Number of events that the store has not confirmed yet."""
        ...


class Queue(Protocol):
    """A model's queue, as `Metrics.watch_model` reports it: numbers of running and waiting requests."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class Metrics:
    """All metrics of one gateway, in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "gateway_requests", "HTTP requests.", ["route", "status"], registry=registry
        )
        self._responses = Counter(
            "gateway_responses", "Responses, completions, embeddings and scorings by terminal status.", ["model", "status"],
            registry=registry,
        )  # fmt: skip
        self._tokens = Counter(
            "gateway_tokens", "Tokens: input, cached (a part of input), output, reasoning (a part of output).",
            ["model", "kind"], registry=registry,
        )  # fmt: skip
        self._recoveries = Counter(
            "gateway_parser_recoveries", "Malformed model output that was shown as text or guessed.",
            ["model"], registry=registry,
        )  # fmt: skip
        self._unknown = Counter(
            "gateway_unknown_parameters", "Parameters of requests that have no effect on this server.",
            ["route", "parameter"], registry=registry,
        )  # fmt: skip
        self._tool_calls = Counter(
            "gateway_tool_calls", "Calls of tools that the server runs.", ["tool", "outcome"],
            registry=registry,
        )  # fmt: skip
        self._tool_seconds = Histogram(
            "gateway_tool_seconds", "Duration of server-run tool calls.", ["tool"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._omitted_tools = Counter(
            "gateway_omitted_tools", "Tools that requests asked the server to run and that were left out.",
            ["type"], registry=registry,
        )  # fmt: skip
        self._running = Gauge(
            "gateway_running_requests", "Requests running in the engine.", ["model"],
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._waiting = Gauge(
            "gateway_waiting_requests", "Requests waiting for the engine.", ["model"],
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._streams = Gauge(
            "gateway_open_streams", "Streams that are being sent.",
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self.open_streams = 0
        """Streams that are being sent. The code that sends a stream increments and decrements it."""
        self._opened = Gauge(
            "gateway_model_opened", "0 if the last attempt to load the model failed, otherwise 1.", ["model"],
            registry=registry, multiprocess_mode="livemin",
        )  # fmt: skip
        self._background = {
            name: Gauge(
                f"gateway_background_{name}", text, registry=registry, multiprocess_mode="livesum"
            )
            for name, text in (
                ("queued", "Background responses of this server that wait for the engine."),
                ("running", "Background responses of this server that run."),
                ("leases", "Leases on background responses that this server holds and renews."),
                ("followers", "Clients that follow a background response from memory."),
                ("lag_events", "Events of background responses that the store has not yet confirmed."),
            )
        }  # fmt: skip
        self._store_seconds = Histogram(
            "gateway_store_seconds", "Time to store a finished response.", ["outcome"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self._build = Gauge(
            "gateway_build_info", "1; the labels are the versions of the gateway and of Python.",
            ["version", "python"], registry=registry, multiprocess_mode="max",
        )  # fmt: skip
        self._build.labels(metadata.version("litegate"), platform.python_version()).set(1)
        self._run_histograms = _RunHistograms(registry)
        self._of_runs: dict[tuple[str, str], _RunSeries] = {}
        if not several_processes():
            ProcessCollector(registry=registry)
            PlatformCollector(registry=registry)
        self._states = Gauge(
            "gateway_model_state", "1 for the state that the model is in, 0 for the others.", ["model", "state"],
            registry=registry, multiprocess_mode="livesum",
        )  # fmt: skip
        self._fallbacks = Counter(
            "gateway_fallbacks", "Requests that another model was tried for, because the first did not answer.",
            ["model", "next"], registry=registry,
        )  # fmt: skip
        self._certificate: Gauge | None = None
        self._ended: list[RunStats] = []
        """Runs that have ended and are not counted yet."""
        self._added: dict[Counter, int] = {}
        """Amounts that are not yet added to their counters; see `_add`."""
        self._answered: dict[tuple[str, int], Counter] = {}
        self._finished: dict[tuple[str, str], Counter] = {}
        self._of_kinds: dict[str, list[Counter]] = {}
        self._refreshers: list[Callable[[], None]] = []
        self._queue_refreshers: dict[str, Callable[[], None]] = {}
        """By the model's name."""
        self._engines = _EngineCollector()
        registry.register(self._engines)
        self._scraping = asyncio.Lock()

    def certificate_expiry(self, unix_time: float) -> None:
        """Report the time at which the server's certificate expires."""
        if self._certificate is None:
            self._certificate = Gauge(
                "gateway_tls_certificate_expiry_timestamp_seconds", "Unix time at which the server's certificate expires.",
                registry=self.registry, multiprocess_mode="livemin",
            )  # fmt: skip
        self._certificate.set(unix_time)

    def model_state(self, name: str, state: str, states: Iterable[str]) -> None:
        """Report the state of a model of the configuration, one of `states`."""
        self._opened.labels(name).set(state != "failed")
        for each in states:
            self._states.labels(name, each).set(each == state)

    def forget_model(self, name: str, states: Iterable[str]) -> None:
        """Report that a model has been removed: it is in none of `states` and has no requests."""
        self._queue_refreshers.pop(name, None)
        for gauge in (self._running, self._waiting):
            gauge.labels(name).set(0)
        for each in states:
            self._states.labels(name, each).set(0)

    def watch_model(self, name: str, queue: Queue) -> None:
        """Report a model's running and waiting requests, read at each scrape. Replaces an earlier queue of that
        name."""
        running, waiting = self._running.labels(name), self._waiting.labels(name)

        def refresh() -> None:
            running.set(queue.running)
            waiting.set(queue.waiting)

        self._queue_refreshers[name] = refresh

    def watch_engine(self, model: str, engine: MeasuredEngine) -> None:
        """Report an engine's own metrics, labelled with the model's name."""
        self._engines.add(model, engine)

    def unwatch_engine(self, engine: MeasuredEngine) -> None:
        """Stop reporting an engine. Does nothing if it is not reported."""
        self._engines.remove(engine)

    def request_answered(self, route: str, status: int) -> None:
        # Looking up a counter by its labels is the most expensive step, so the counters are cached.
        counter = self._answered.get((route, status))
        if counter is None:
            counter = self._answered[route, status] = self._requests.labels(route, str(status))
        self._add(counter, 1)

    def watch_background(self, background: BackgroundCounts) -> None:
        """Report the background responses of this process, read at each scrape."""

        def refresh() -> None:
            queued, running = background.queued, background.running
            shown = self._background
            shown["queued"].set(queued)
            shown["running"].set(running)
            shown["leases"].set(queued + running)
            shown["followers"].set(background.followers)
            shown["lag_events"].set(background.lag)

        self._refreshers.append(refresh)

    def stored(self, seconds: float, *, failed: bool) -> None:
        """Observe the time to store a finished response, in seconds."""
        self._store_seconds.labels("failed" if failed else "completed").observe(seconds)

    def run_finished(self, run: RunStats) -> None:
        """Count a run that has ended, at the next `refresh` or after `_MAX_ENDED` runs: counting many together costs a
        fraction. Completions, embeddings and scorings use the statuses of responses."""
        self._ended.append(run)
        if len(self._ended) >= _MAX_ENDED:
            self._count_ended()

    def _count_ended(self) -> None:
        ended, self._ended = self._ended, []
        for run in ended:
            self._count_run(run)

    def _count_run(self, run: RunStats) -> None:
        if run.status is None:
            return
        self._count(run.model, run.status, run.usage)
        series = self._of_runs.get((run.model, run.api))
        if series is None:
            series = self._of_runs[run.model, run.api] = self._run_histograms.of(run.model, run.api)
        series.observe(run)

    def _count(self, model: str, status: ResponseStatus, usage: Usage | None) -> None:
        counter = self._finished.get((model, status))
        if counter is None:
            counter = self._finished[model, status] = self._responses.labels(model, status)
        self._add(counter, 1)
        if usage is None:
            return
        kinds = self._of_kinds.get(model)
        if kinds is None:
            kinds = self._of_kinds[model] = [
                self._tokens.labels(model, kind)
                for kind in ("input", "cached", "output", "reasoning")
            ]
        made = (
            usage.input_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )
        added = self._added
        for counter, tokens in zip(kinds, made, strict=True):
            if tokens:
                added[counter] = added.get(counter, 0) + tokens

    def _add(self, counter: Counter, amount: int) -> None:
        """Add `amount` to a counter at the next `refresh`. Adding to it directly for each request would take a lock."""
        added = self._added
        added[counter] = added.get(counter, 0) + amount

    def fell_back(self, model: str, following: str) -> None:
        """Count a request that fell back from a model to the next one."""
        self._fallbacks.labels(model, following).inc()

    def parser_recovered(self, model: str, times: int) -> None:
        self._recoveries.labels(model).inc(times)

    def unknown_parameter(self, route: str, name: str) -> None:
        """Count a request whose parameter `name` has no effect. The number of different names must be bounded."""
        self._unknown.labels(route, name).inc()

    def tool_called(self, tool: str, *, failed: bool, seconds: float) -> None:
        self._tool_calls.labels(tool, "failed" if failed else "completed").inc()
        self._tool_seconds.labels(tool).observe(seconds)

    def tool_omitted(self, kind: str) -> None:
        """Count a request whose tool of the type `kind` is not available and was omitted."""
        self._omitted_tools.labels(kind).inc()

    def refresh(self) -> None:
        """Update the gauges that are read from other objects, and add pending amounts to the counters.

        If there are several workers, each calls this once a second, because a scrape reaches only one of them.
        """
        self._count_ended()
        added, self._added = self._added, {}
        for counter, amount in added.items():
            counter.inc(amount)
        self._streams.set(self.open_streams)
        for refresh in (*self._refreshers, *self._queue_refreshers.values()):
            refresh()

    async def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return the same as `exposition`, without blocking the event loop.

        Writing many series takes tens of milliseconds, so it is done in a thread, one scrape at a time. Before that,
        engines may fetch their own metrics, for at most `REFRESH_SECONDS`.
        """
        await self._engines.refresh()
        async with self._scraping:
            self._read_all()
            return await asyncio.to_thread(self._written, accept)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics and their content type. If there are several workers, the metrics of all are included.

        The format is OpenMetrics if the header `accept` names it, and otherwise Prometheus' text format. Only
        OpenMetrics has exemplars with request ids.
        """
        self._read_all()
        return self._written(accept)

    def _read_all(self) -> None:
        """Read the values that may only be read on the event loop's thread."""
        self.refresh()
        self._engines.read()

    def _written(self, accept: str) -> tuple[bytes, str]:
        source: Collector = self.registry
        if several_processes():
            merged = CollectorRegistry()
            MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
            source = merged
        shown = _WithoutCreated(source)
        if any(
            each.partition(";")[0].strip() == "application/openmetrics-text"
            for each in accept.split(",")
        ):
            body: bytes = generate_openmetrics(shown)  # type: ignore[no-untyped-call]
            return body, OPENMETRICS
        return generate_latest(shown), CONTENT_TYPE


def several_processes() -> bool:
    """Whether the metrics of several worker processes are merged."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


class _RunHistograms:
    """The histograms of runs, labelled with model and API."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Metrics of several processes are summed from files, which only Prometheus' client writes.
        kind = Histogram if several_processes() else LightHistogram

        def made(name: str, text: str, buckets: tuple[float, ...]) -> Histogram | LightHistogram:
            return kind(name, text, ["model", "api"], buckets=buckets, registry=registry)

        self._first_token = made(
            "gateway_time_to_first_token_seconds",
            "Time from a request's arrival to the engine's first output.", _FIRST_TOKEN_SECONDS,
        )  # fmt: skip
        self._per_token = made(
            "gateway_request_time_per_output_token_seconds",
            "Mean time per output token after the first, of one request.", _PER_TOKEN_SECONDS,
        )  # fmt: skip
        self._latency = made(
            "gateway_e2e_request_latency_seconds",
            "Time from a request's arrival to the end of its run.", _LATENCY_SECONDS,
        )  # fmt: skip
        self._queue = made(
            "gateway_request_queue_time_seconds", "Time in the model's queue.", _LATENCY_SECONDS
        )
        self._prompt = made(
            "gateway_request_prompt_tokens", "Input tokens of one request.", _TOKENS
        )
        self._cached = made(
            "gateway_request_cached_tokens", "Input tokens of one request from the engine's prefix cache.", _TOKENS
        )  # fmt: skip
        self._generated = made(
            "gateway_request_generation_tokens", "Output tokens of one request.", _TOKENS
        )

    def of(self, model: str, api: str) -> _RunSeries:
        # Looking up a series by its labels is expensive, so the caller keeps the result.
        return _RunSeries(
            *(
                histogram.labels(model, api)
                for histogram in (
                    self._first_token, self._per_token, self._latency, self._queue, self._prompt, self._cached,
                    self._generated,
                )
            )
        )  # fmt: skip


_Observed: TypeAlias = Histogram | LightSeries


class _RunSeries(Struct, frozen=True):
    """The histograms of one model and API."""

    first_token: _Observed
    per_token: _Observed
    latency: _Observed
    queue: _Observed
    prompt: _Observed
    cached: _Observed
    generated: _Observed

    def observe(self, run: RunStats) -> None:
        exemplar = {"request_id": run.request_id[:_MAX_ID_LENGTH]} if run.request_id else None
        if (seconds := run.first_token_seconds) is not None:
            self.first_token.observe(seconds, exemplar)
        if (seconds := run.seconds_per_token) is not None:
            self.per_token.observe(seconds)
        self.latency.observe(run.seconds, exemplar)
        if (seconds := run.queue_seconds) is not None:
            self.queue.observe(seconds)
        if (usage := run.usage) is not None:
            self.prompt.observe(usage.input_tokens)
            if cached := usage.input_tokens_details.cached_tokens:
                self.cached.observe(cached)
            self.generated.observe(usage.output_tokens)


class _WithoutCreated(Collector):
    """The metrics of another collector without the `_created` series, which no query uses."""

    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        for family in self._source.collect():
            family.samples = [
                sample for sample in family.samples if not sample.name.endswith("_created")
            ]
            yield family


REFRESH_SECONDS = 1.0
"""How long a scrape waits for engines that fetch their metrics from elsewhere, in seconds."""


class _EngineCollector(Collector):
    """Collects the samples of all engines for Prometheus' client, with one family per metric."""

    def __init__(self) -> None:
        self._engines: list[tuple[str, MeasuredEngine]] = []
        self._families: tuple[Metric, ...] = ()

    def add(self, model: str, engine: MeasuredEngine) -> None:
        self._engines.append((model, engine))

    def remove(self, engine: MeasuredEngine) -> None:
        self._engines = [each for each in self._engines if each[1] is not engine]

    async def refresh(self) -> None:
        """Let the engines fetch their metrics. Does not raise."""
        asked = [
            asyncio.ensure_future(engine.refresh_metrics())
            for _, engine in self._engines
            if isinstance(engine, RefreshedEngine)
        ]
        if not asked:
            return
        done, late = await asyncio.wait(asked, timeout=REFRESH_SECONDS)
        for task in late:
            task.cancel()
        for task in done:
            if (error := task.exception()) is not None:
                logger.warning("an engine's metrics could not be read", exc_info=error)

    def describe(self) -> Iterable[Metric]:
        return ()  # known only at a scrape

    def collect(self) -> Iterable[Metric]:
        """The families that `read` has read last."""
        return self._families

    def read(self) -> None:
        """Read the samples of all engines."""
        families: dict[str, Metric] = {}
        for model, engine in self._engines:
            for sample in engine.metrics():
                name = family_name = sample.name
                if sample.kind == "counter":
                    name = f"{sample.name}_total"
                elif sample.kind == "histogram":
                    family_name = sample.name.rpartition("_")[0]
                family = families.get(family_name)
                if family is None:
                    family = families[family_name] = Metric(family_name, sample.help, sample.kind)
                family.add_sample(name, {"model": model, **sample.labels}, sample.value)
        self._families = tuple(families.values())
