"""A process that was stopped, and clocks that were set."""

from __future__ import annotations

import pytest

from gateway.observe.stall_watch import StallWatch


@pytest.mark.parametrize(
    ("passed", "by_the_wall", "stalled"),
    [
        (5, 5, False),
        (11, 11, True),  # stopped
        (5, 3605, True),  # suspended, or set ahead
        (5, -3595, True),
        (5, -4, False),
    ],
)
def test_a_stall_is_seen_by_either_clock_and_once(
    passed: float, by_the_wall: float, stalled: bool
) -> None:
    now = [100.0, 1e9]
    watch = StallWatch(monotonic=lambda: now[0], wall=lambda: now[1])
    now[0] += passed
    now[1] += by_the_wall
    assert watch.stalled(10) is stalled
    assert not watch.stalled(10)
