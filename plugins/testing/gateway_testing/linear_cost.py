"""Checking that the CPU time of work grows in proportion to its size, and not to the square of its size."""

from __future__ import annotations

import time
from collections.abc import Callable

_MOST = 24
"""Maximum ratio of the times. Eight times the work takes 8 times as long if the cost is linear, and 64 times if
quadratic."""
_ROUNDS = 4


def check_cost_is_linear(
    short: Callable[[], object], long: Callable[[], object], what: str
) -> None:
    """Raise `AssertionError` if `long` takes 24 times as much CPU time of this thread as `short`, or more. `long` must
    be eight times the work of `short`. The error names `what`.

    The best of several repetitions counts; there are as many as necessary. A busy machine makes some slower, but none
    faster.
    """
    best_short = best_long = float("inf")
    for _ in range(_ROUNDS):
        best_short = min(best_short, _seconds(short), _seconds(short))
        best_long = min(best_long, _seconds(long))
        if best_long < _MOST * best_short:
            return
    raise AssertionError(f"{what}: {best_short:.4f} s, then {best_long:.4f} s")


def _seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start
