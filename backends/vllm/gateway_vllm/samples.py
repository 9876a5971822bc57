"""vLLM's own metrics, as the gateway exposes them. vLLM registers them with Prometheus' client in this process."""

from __future__ import annotations

from typing import Literal, cast

from prometheus_client import REGISTRY

from gateway.sdk import MetricSample

_KINDS = frozenset(("counter", "gauge", "histogram"))
_PREFIX = "vllm:"


def registered_samples(model_name: str) -> list[MetricSample]:
    """The current values of vLLM's metrics of the model that vLLM calls `model_name`."""
    return [
        MetricSample(
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
