"""Metrics of plugins: counters, gauges and histograms with a bounded number of series."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.base.errors import ConfigurationError

MAX_SERIES: Final = 200
"""Maximum number of series of one metric. Further combinations of label values share a series whose values are
`OTHER`."""
OTHER: Final = "other"
_MAX_METRICS: Final = 100
"""Maximum number of metrics of one plugin."""
_MAX_LABELS: Final = 4
_MAX_BUCKETS: Final = 30
_LONGEST_VALUE: Final = 100
"""Maximum number of characters of a label's value."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,59}")
_RESERVED: Final = frozenset({"le", "quantile", "pid"})
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

MetricT = TypeVar("MetricT")
_Kind: TypeAlias = type[Counter] | type[Gauge] | type[Histogram]


class _Metric:
    """A metric and the number of plugins that use it."""

    def __init__(self, made: Any, definition: tuple[object, ...], labels: tuple[str, ...]) -> None:
        self.made = made
        self.definition = definition
        self.users = 0
        self._labels = labels
        self._names = frozenset(labels)
        self._series: dict[tuple[str, ...], Any] = {}
        self._lock = Lock()

    def of(self, values: dict[str, str]) -> Any:
        """The series with these label values. May be called in any thread."""
        if values.keys() != self._names:
            raise ValueError(f"the labels of this metric are: {', '.join(self._labels) or 'none'}")
        key = tuple([values[label] for label in self._labels])
        found = self._series.get(key)
        return self._add(key) if found is None else found

    def _add(self, key: tuple[str, ...]) -> Any:
        if not key:
            return self._series.setdefault(key, self.made)
        shown = tuple(str(value)[:_LONGEST_VALUE] for value in key)
        with self._lock:
            # The last series is reserved for all other combinations.
            if shown not in self._series and len(self._series) >= MAX_SERIES - 1:
                shown = (OTHER,) * len(key)
            if shown not in self._series:
                self._series[shown] = self.made.labels(*shown)
            return self._series[shown]


class PluginCounter:
    """Implements `gateway.plugins.protocols.CounterMetric`."""

    def __init__(self, metric: _Metric) -> None:
        self._metric = metric

    def add(self, amount: float = 1, **labels: str) -> None:
        self._metric.of(labels).inc(amount)


class PluginGauge:
    """Implements `gateway.plugins.protocols.GaugeMetric`."""

    def __init__(self, metric: _Metric) -> None:
        self._metric = metric

    def set(self, value: float, **labels: str) -> None:
        self._metric.of(labels).set(value)


class PluginHistogram:
    """Implements `gateway.plugins.protocols.HistogramMetric`."""

    def __init__(self, metric: _Metric) -> None:
        self._metric = metric

    def observe(self, value: float, **labels: str) -> None:
        self._metric.of(labels).observe(value)


class MetricTable:
    """The metrics of all plugins in one registry. Metrics with the same name and definition are shared."""

    def __init__(self, registry: CollectorRegistry, *, several_processes: bool) -> None:
        self._registry = registry
        self._several_processes = several_processes
        self._metrics: dict[str, _Metric] = {}

    def take(
        self, kind: _Kind, name: str, text: str, labels: tuple[str, ...], options: dict[str, Any]
    ) -> _Metric:
        """The metric with this name, which is created if needed. Raises `ConfigurationError` if it exists with another
        definition."""
        definition = (kind, text, labels, tuple(options.items()))
        found = self._metrics.get(name)
        if found is None:
            try:
                made = kind(name, text, labels, registry=self._registry, **options)
            except ValueError as error:
                raise ConfigurationError(f"the metric {name} cannot be made: {error}.") from error
            found = self._metrics[name] = _Metric(made, definition, labels)
        elif found.definition != definition:
            raise ConfigurationError(f"there is another metric {name}, which is not the same.")
        found.users += 1
        return found

    def release(self, name: str) -> None:
        """Note that a plugin no longer uses a metric, and remove it from `/metrics` if no other plugin does. With
        several processes, its values are in their files, and are shown until the server ends."""
        metric = self._metrics[name]
        metric.users -= 1
        if metric.users:
            return
        del self._metrics[name]
        if self._several_processes and isinstance(metric.made, Gauge):
            for series in metric._series.values():
                series.set(0)
        self._registry.unregister(metric.made)


class PluginMetrics:
    """The metrics of one open plugin."""

    def __init__(self, table: MetricTable, plugin: str) -> None:
        self._table = table
        self._plugin = re.sub(r"[^a-z0-9_]", "_", plugin.lower())
        self._taken: list[str] = []

    def counter(self, name: str, text: str, labels: Sequence[str]) -> PluginCounter:
        return self._create(Counter, PluginCounter, name, text, labels)

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> PluginGauge:
        return self._create(Gauge, PluginGauge, name, text, labels, multiprocess_mode="livesum")

    def histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> PluginHistogram:
        bounds = tuple(buckets) or _SECONDS
        if len(bounds) > _MAX_BUCKETS or list(bounds) != sorted(set(bounds)):
            raise ConfigurationError(
                f"the buckets of the metric {name!r} must ascend, and be at most {_MAX_BUCKETS}."
            )
        return self._create(Histogram, PluginHistogram, name, text, labels, buckets=bounds)

    def _create(
        self,
        kind: _Kind,
        shown_as: Callable[[_Metric], MetricT],
        name: str,
        text: str,
        labels: Sequence[str],
        **options: Any,
    ) -> MetricT:
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"a metric cannot have the name {name!r}: write small letters, digits and underscores, at most 60."
            )
        wrong = [each for each in labels if not _NAME.fullmatch(each) or each in _RESERVED]
        if wrong or len(labels) > _MAX_LABELS or len(set(labels)) != len(labels):
            raise ConfigurationError(
                f"the metric {name!r} cannot have the labels {', '.join(labels)}: at most {_MAX_LABELS}, each once, of small letters, "
                f"digits and underscores, and none of {', '.join(sorted(_RESERVED))}."
            )
        if len(self._taken) >= _MAX_METRICS:
            raise ConfigurationError(f"a plugin can have at most {_MAX_METRICS} metrics.")
        full = f"gateway_plugin_{self._plugin}_{name}"
        metric = self._table.take(kind, full, text, tuple(labels), options)
        self._taken.append(full)
        return shown_as(metric)

    def close(self) -> None:
        """Release the plugin's metrics."""
        while self._taken:
            self._table.release(self._taken.pop())
