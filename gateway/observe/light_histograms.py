"""Fast histograms for values that every request observes.

The histograms of Prometheus' client take two locks and about ten calls for each value.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString


class LightHistogram(Collector):
    """A histogram of one process, exported like a `Histogram` of Prometheus' client.

    Values must be observed on one thread; `collect` may be called on any.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        buckets: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        """`buckets` are the upper bounds in ascending order, without infinity."""
        self._name = name
        self._documentation = documentation
        self._label_names = labels
        self._bounds = (*buckets, inf)
        self._series: dict[tuple[str, ...], LightSeries] = {}
        registry.register(self)

    def labels(self, *values: str) -> LightSeries:
        """Return the series with these label values, and create it if necessary."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = LightSeries(self._bounds)
        return series

    def describe(self) -> Iterable[Metric]:
        return (self._family(),)

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        for labels, series in list(self._series.items()):
            so_far, buckets = 0, []
            counts = list(series.counts)
            for at, (bound, count) in enumerate(zip(self._bounds, counts, strict=True)):
                so_far += count
                shown = floatToGoString(bound)  # type: ignore[no-untyped-call]
                buckets.append((shown, float(so_far), series.exemplar(at)))
            family.add_metric(labels, buckets, series.sum)  # type: ignore[arg-type]  # it takes None for no exemplar
        return (family,)

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(
            self._name, self._documentation, labels=list(self._label_names)
        )


class LightSeries:
    """The observed values of one combination of label values."""

    __slots__ = ("_bounds", "_exemplars", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._exemplars: dict[int, tuple[Mapping[str, str], float, float]] = {}
        """The last exemplar of each bucket that has one: labels, value, Unix time."""
        self.counts = [0] * len(bounds)
        """Number of values in each bucket, not cumulative."""
        self.sum = 0.0

    def observe(self, amount: float, exemplar: Mapping[str, str] | None = None) -> None:
        """Count a value. `exemplar`: labels of an exemplar of the value's bucket, at most 128 characters in total."""
        at = bisect_left(self._bounds, amount)
        self.counts[at] += 1
        self.sum += amount
        if exemplar:
            self._exemplars[at] = exemplar, amount, time.time()

    def exemplar(self, bucket: int) -> Exemplar | None:
        """The exemplar of the bucket with index `bucket`, or None."""
        found = self._exemplars.get(bucket)
        return None if found is None else Exemplar(dict(found[0]), found[1], found[2])
