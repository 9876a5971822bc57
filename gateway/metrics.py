"""Prometheus metrics of the server. Nothing here is called per token."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from gateway.protocols import MeasuredEngine
from gateway.wire.response import ResponseStatus, Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Queue(Protocol):
    """A queue that `Metrics.watch_model` reports: running and waiting requests."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class Metrics:
    """All metrics of one gateway, in their own registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
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
            "gateway_unknown_parameters", "Requests with parameters that this server does not know.",
            ["route"], registry=registry,
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
        self._opened = Gauge(
            "gateway_model_opened", "Whether the model could be opened when the server started.", ["model"],
            registry=registry, multiprocess_mode="livemin",
        )  # fmt: skip
        self._answered: dict[tuple[str, int], Counter] = {}
        self._finished: dict[tuple[str, str], Counter] = {}
        self._of_kinds: dict[str, list[Counter]] = {}
        self._refreshers: list[Callable[[], None]] = []
        self._engines = _EngineCollector()
        registry.register(self._engines)

    def model_opened(self, name: str, *, opened: bool) -> None:
        """Report whether a model of the configuration is open."""
        self._opened.labels(name).set(opened)

    def watch_model(self, name: str, queue: Queue) -> None:
        """Report a model's running and waiting requests, read at each scrape."""
        running, waiting = self._running.labels(name), self._waiting.labels(name)

        def refresh() -> None:
            running.set(queue.running)
            waiting.set(queue.waiting)

        self._refreshers.append(refresh)

    def watch_engine(self, model: str, engine: MeasuredEngine) -> None:
        """Report an engine's own metrics, labelled with the model's name."""
        self._engines.add(model, engine)

    def request_answered(self, route: str, status: int) -> None:
        # Looking up a counter by its labels is the most expensive step, so each counter is looked up once.
        counter = self._answered.get((route, status))
        if counter is None:
            counter = self._answered[route, status] = self._requests.labels(route, str(status))
        counter.inc()

    def run_finished(self, model: str, status: ResponseStatus, usage: Usage | None) -> None:
        """Count an answer that has ended. Completions, embeddings and scorings use the statuses of responses."""
        counter = self._finished.get((model, status))
        if counter is None:
            counter = self._finished[model, status] = self._responses.labels(model, status)
        counter.inc()
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
        for counter, tokens in zip(kinds, made, strict=True):
            if tokens:
                counter.inc(tokens)

    def parser_recovered(self, model: str, times: int) -> None:
        self._recoveries.labels(model).inc(times)

    def unknown_parameters(self, route: str) -> None:
        self._unknown.labels(route).inc()

    def tool_called(self, tool: str, *, failed: bool, seconds: float) -> None:
        self._tool_calls.labels(tool, "failed" if failed else "completed").inc()
        self._tool_seconds.labels(tool).observe(seconds)

    def tool_omitted(self, kind: str) -> None:
        """Count a request whose tool of the type `kind` is not available and was omitted."""
        self._omitted_tools.labels(kind).inc()

    def stream_opened(self) -> None:
        self._streams.inc()

    def stream_closed(self) -> None:
        self._streams.dec()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format, of all workers if there are several."""
        for refresh in self._refreshers:
            refresh()
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        merged = CollectorRegistry()
        MultiProcessCollector(merged)  # type: ignore[no-untyped-call]
        return generate_latest(merged)


class _EngineCollector(Collector):
    """The samples of all engines for Prometheus' client, merged to one family per metric."""

    def __init__(self) -> None:
        self._engines: list[tuple[str, MeasuredEngine]] = []

    def add(self, model: str, engine: MeasuredEngine) -> None:
        self._engines.append((model, engine))

    def describe(self) -> Iterable[Metric]:
        return ()  # known only at a scrape

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for model, engine in self._engines:
            for sample in engine.metrics():
                family = families.setdefault(
                    sample.name, Metric(sample.name, sample.help, sample.kind)
                )
                name = f"{sample.name}_total" if sample.kind == "counter" else sample.name
                family.add_sample(name, {"model": model, **sample.labels}, sample.value)
        return families.values()
