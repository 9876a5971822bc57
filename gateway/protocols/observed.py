"""What an engine may tell of itself, beyond what it must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable


class MetricSample(Protocol):
    """One value, in Prometheus' terms."""

    @property
    def name(self) -> str:
        """A counter's name has no `_total`."""
        ...

    @property
    def kind(self) -> Literal["counter", "gauge"]: ...

    @property
    def help(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]:
        """The model's name is added under `model`."""
        ...

    @property
    def value(self) -> float: ...


@runtime_checkable
class MeasuredEngine(Protocol):
    """An engine with metrics of its own, which `/metrics` shows."""

    def metrics(self) -> Sequence[MetricSample]:
        """The values now; asked at each scrape, so it must be cheap."""
        ...


@runtime_checkable
class DescribedEngine(Protocol):
    """An engine with parts that `gateway models` lists, such as replicas."""

    def describe(self) -> Sequence[Mapping[str, Any]]:
        """One row per part, as plain JSON."""
        ...
