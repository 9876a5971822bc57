"""vLLM's own metrics, as the gateway exposes them. vLLM registers them with Prometheus' client in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct
from prometheus_client import REGISTRY

_KINDS = frozenset(("counter", "gauge", "histogram"))
_PREFIX = "vllm:"


class Sample(Struct, frozen=True, kw_only=True):
    """One value. Implements `gateway.sdk.MetricSample`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, str]
    value: float


def registered_samples(model_name: str) -> list[Sample]:
    """The current values of vLLM's metrics of the model that vLLM calls `model_name`."""
    return [
        Sample(
            name=sample.name.removesuffix("_total") if family.type == "counter" else sample.name,
            kind=cast("Literal['counter', 'gauge', 'histogram']", family.type),
            help=family.documentation,
            labels=sample.labels,
            value=sample.value,
        )
        for family in REGISTRY.collect()
        if family.name.startswith(_PREFIX) and family.type in _KINDS
        for sample in family.samples
        if not sample.name.endswith("_created")
        and sample.labels.get("model_name", model_name) == model_name
    ]
