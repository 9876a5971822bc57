"""Functions in helper processes that are killed at a deadline, tasks within a context, fair shares of limited resources
between owners, and temporary folders that are removed when their process ends."""

from gateway.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)
from gateway.shares import SHARE_THREADS, FairThreads, ShareExceeded, Shares, Turns, current_owner
from gateway.task_context import running_task
from gateway.temporary_folders import (
    TemporaryFolder,
)

__all__ = [
    "SHARE_THREADS",
    "FairThreads",
    "FunctionFailed",
    "HelperDeadlineExceeded",
    "HelperFailure",
    "PoolBusy",
    "ProcessPool",
    "ShareExceeded",
    "Shares",
    "TemporaryFolder",
    "Turns",
    "current_owner",
    "running_task",
    "wait_for_end",
]
