from __future__ import annotations

import re
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from gateway.observe.light_histograms import LightHistogram

BOUNDS = (0.001, 0.5, 1, 2.5, 1000)
LABELS = ("model", "api")

amounts = st.sampled_from(BOUNDS) | st.floats(0, 5000) | st.integers(0, 5000)
examples = st.none() | st.text('ab"\\\n é', max_size=20).map(lambda text: {"request_id": text})
observed = st.lists(st.tuples(st.sampled_from(["m", 'n"']), amounts, examples), max_size=20)


def shown(registry: CollectorRegistry) -> list[bytes]:
    return [
        re.sub(rb"(?m)^(# (TYPE|HELP) )?h_created.*\n", b"", body)
        for body in (generate_latest(registry), generate_openmetrics(registry))  # type: ignore[no-untyped-call]
    ]


@given(observed)
def test_it_is_shown_as_a_histogram_of_prometheus_is(
    values: list[tuple[str, float, dict[str, str] | None]],
) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    light = LightHistogram("h", "Some text.", LABELS, buckets=BOUNDS, registry=ours)
    heavy = Histogram("h", "Some text.", LABELS, buckets=BOUNDS, registry=theirs)
    with patch("time.time", return_value=1.5):
        for model, amount, example in values:
            light.labels(model, "chat").observe(amount, example)
            heavy.labels(model, "chat").observe(amount, example)
    assert shown(ours) == shown(theirs)


def test_series_may_be_added_while_it_is_collected() -> None:
    """It is collected in another thread than it is observed on."""
    registry = CollectorRegistry()
    light = LightHistogram("h", "Some text.", LABELS, buckets=BOUNDS, registry=registry)
    first = light.labels("m", "chat")
    with patch.object(type(first), "exemplar", lambda series, at: light.labels(f"m{at}", "x") and None):  # fmt: skip
        list(light.collect())
    assert len(next(iter(light.collect())).samples) > len(BOUNDS) * 2
