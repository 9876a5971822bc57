"""llama.cpp's metrics are read as text; what is no metric is passed over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway_llamacpp.samples import read_samples

TEXT = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 15
# HELP llamacpp:n_tokens_max Largest sequence
# TYPE llamacpp:n_tokens_max counter
llamacpp:n_tokens_max 22
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1.5
"""


def test_counters_and_gauges_are_read() -> None:
    found = [(each.name, each.kind, each.value, each.help) for each in read_samples(TEXT)]
    assert found == [
        ("llamacpp:prompt_tokens", "counter", 15, "Number of prompt tokens processed"),
        ("llamacpp:n_tokens_max", "gauge", 22, "Largest sequence"),
        ("llamacpp:requests_processing", "gauge", 1.5, ""),
    ]


def test_an_error_has_no_metrics() -> None:
    assert read_samples('{"error":{"code":501,"message":"no metrics"}}') == []


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert all(each.name for each in read_samples(TEXT + text))
