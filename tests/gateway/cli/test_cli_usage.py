"""`gateway usage`: how amounts are shown."""

from __future__ import annotations

import pytest

from gateway.cli.usage import _money


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0000"),
        (12345.6789, "12345.6789"),
        (0.1, "0.1000"),
        (0.00012, "0.000120"),
        (3e-7, "0.000000300"),
        (1e-30, "0.000000000000"),
    ],
)
def test_small_costs_are_not_nothing(value: float, shown: str) -> None:
    assert _money(value) == shown
