"""Runs functions in helper processes, which are killed when they exceed a time or memory limit.

For work whose cost depends on external input: documents, schemas and patterns. Such work must not block the event loop,
and a thread cannot be stopped, but a process can be killed.
"""

from gateway.base.process_pool.pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperDied,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)

__all__ = [
    "FunctionFailed",
    "HelperDeadlineExceeded",
    "HelperDied",
    "HelperFailure",
    "PoolBusy",
    "ProcessPool",
    "wait_for_end",
]
