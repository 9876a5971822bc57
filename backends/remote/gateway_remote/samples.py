"""Metrics and status rows of a pool."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import get_args

import msgspec

from gateway.sdk import MetricSample
from gateway_remote.pool import Pool
from gateway_remote.replica import Replica, Status, Totals

_COUNTERS = {
    "requests": "Requests sent to the replica.",
    "served": "Requests that it answered.",
    "failed": "Requests that it did not answer, or not to the end.",
    "busy": "Requests that it asked to wait with.",
    "abandoned": "Requests whose client left, or that another replica answered sooner.",
    "broken": "Streams that failed after their first token.",
    "ejections": "How often it was taken out.",
    "returns": "How often health checks brought it back.",
    "affine": "Requests that shared a prefix with what it had read.",
    "prompt_tokens": "Prompt tokens of the requests that it answered.",
    "cached_tokens": "Prompt tokens that came from its prefix cache.",
    "output_tokens": "Tokens that it generated.",
}
assert tuple(_COUNTERS) == Totals.__struct_fields__


def samples(pool: Pool, *, retries: int, hedges: int) -> list[MetricSample]:
    """Current values of all metrics."""
    now = time.monotonic()
    made = [
        MetricSample(
            name="gateway_remote_retries",
            kind="counter",
            help="Requests that were tried on another replica.",
            labels={},
            value=retries,
        ),
        MetricSample(
            name="gateway_remote_hedges",
            kind="counter",
            help="Requests that were sent to a second replica.",
            labels={},
            value=hedges,
        ),
        MetricSample(
            name="gateway_remote_waiting",
            kind="gauge",
            help="Requests that wait because all replicas have as many as they may, or none can serve.",
            labels={},
            value=pool.waiting,
        ),
    ]
    for replica in pool.replicas:
        labels = {"replica": replica.endpoint.url}
        made.append(
            MetricSample(
                name="gateway_remote_running",
                kind="gauge",
                help="Requests that the replica runs for this gateway.",
                labels=labels,
                value=replica.running,
            )
        )
        made.append(
            MetricSample(
                name="gateway_remote_up",
                kind="gauge",
                help="1 while the replica gets requests.",
                labels=labels,
                value=replica.status(now) in ("up", "half_open"),
            )
        )
        status = replica.status(now)
        made += (
            MetricSample(
                name="gateway_remote_status",
                kind="gauge",
                help="1 for what the replica is, 0 for what else it could be.",
                labels={**labels, "status": each},
                value=each == status,
            )
            for each in get_args(Status)
        )
        made += (
            MetricSample(
                name=f"gateway_remote_{name}",
                kind="counter",
                help=text,
                labels=labels,
                value=getattr(replica.totals, name),
            )
            for name, text in _COUNTERS.items()
        )
    return made


def describe(replicas: Collection[Replica]) -> list[dict[str, object]]:
    """One status row for each replica."""
    now = time.monotonic()
    return [
        {
            "replica": replica.endpoint.url,
            "status": replica.status(now),
            "reason": replica.down,
            "running": replica.running,
            **msgspec.structs.asdict(replica.totals),
        }
        for replica in replicas
    ]
