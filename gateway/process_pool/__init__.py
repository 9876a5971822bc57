"""Running functions in helper processes, which are killed when they exceed a time or memory limit.

For work whose cost is controlled by external input: documents, schemas and patterns. A thread cannot be stopped, and
the event loop must not block; a process can be killed.
"""

from gateway.process_pool.pool import (
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
