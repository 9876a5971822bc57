"""Optional protocols for engines that report metrics or a description of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct


class MetricSample(Struct, frozen=True, kw_only=True):
    """One value, in Prometheus's terms."""

    name: str
    """Metric name. A counter's name has no `_total` suffix. A histogram's samples have the suffix `_bucket` (with the label
    `le`), `_sum` or `_count`."""
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, str] = {}
    """Metric labels. The gateway adds the model's name as `model`."""
    value: float


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine with its own metrics, which are exposed at `/metrics`."""

    def metrics(self) -> Sequence[MetricSample]:
        """The current values. Called at each scrape, so it must be cheap."""
        ...


@runtime_checkable
class RefreshedEngine(MeasuredEngine, Protocol):
    """A measured engine that has to fetch its values."""

    async def refresh_metrics(self) -> None:
        """Fetch the values that `metrics` returns. Called before each scrape, which waits for it for a second at most
        and then shows the earlier values."""
        ...


@runtime_checkable
class DescribedEngine(Protocol):
    """An engine with parts that `gateway models` lists, such as replicas."""

    def describe(self) -> Sequence[Mapping[str, Any]]:
        """One row per part, as plain JSON."""
        ...
