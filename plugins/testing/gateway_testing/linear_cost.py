"""Whether the CPU time that work takes grows with its size, and not with the square of it."""

from __future__ import annotations

import time
from collections.abc import Callable

_MOST = 24
"""Eight times the work takes 8 times as long if the cost is linear, and 64 times if it is quadratic."""
_ROUNDS = 4


def check_cost_is_linear(
    short: Callable[[], object], long: Callable[[], object], what: str
) -> None:
    """Raise `AssertionError`, which names `what`, if `long`, which is eight times the work of `short`, takes 24 times the CPU
    time of this thread, or more.

    The best of several runs counts, as many as are needed: a busy machine makes some runs slower, and none faster.
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
