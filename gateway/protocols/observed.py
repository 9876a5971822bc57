"""Optional protocols for engines that report metrics or a description of their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable


class MetricSample(Protocol):
    """One value, in the terms of Prometheus."""

    @property
    def name(self) -> str:
        """Metric name. A counter's name has no `_total` suffix."""
        ...

    @property
    def kind(self) -> Literal["counter", "gauge"]: ...

    @property
    def help(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]:
        """Metric labels. The gateway adds the model's name as `model`."""
        ...

    @property
    def value(self) -> float: ...


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine with its own metrics, which are exposed at `/metrics`."""

    def metrics(self) -> Sequence[MetricSample]:
        """The current values. Called at each scrape, so it must be cheap."""
        ...


@runtime_checkable
class DescribedEngine(Protocol):
    """An engine with parts that `gateway models` lists, such as replicas."""

    def describe(self) -> Sequence[Mapping[str, Any]]:
        """One row per part, as plain JSON."""
        ...
