"""Functions in helper processes that are killed at a deadline, tasks within a context, fair shares of limited resources
between owners, and temporary folders that are removed when their process ends."""

from gateway.base.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)
from gateway.base.shares import (
    SHARE_THREADS,
    FairSlots,
    FairThreads,
    ShareExceeded,
    Shares,
    current_owner,
)
from gateway.base.task_context import running_task
from gateway.base.temporary_folders import (
    TemporaryFolder,
)

__all__ = [
    "SHARE_THREADS",
    "FairSlots",
    "FairThreads",
    "FunctionFailed",
    "HelperDeadlineExceeded",
    "HelperFailure",
    "PoolBusy",
    "ProcessPool",
    "ShareExceeded",
    "Shares",
    "TemporaryFolder",
    "current_owner",
    "running_task",
    "wait_for_end",
]
