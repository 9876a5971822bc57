"""Running functions in helper processes, which are killed at a deadline, and tasks within a context; folders that end with their
process."""

from gateway.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)
from gateway.task_context import running_task
from gateway.temporary_folders import (
    TemporaryFolder,
)

__all__ = [
    "FunctionFailed",
    "HelperDeadlineExceeded",
    "HelperFailure",
    "PoolBusy",
    "ProcessPool",
    "TemporaryFolder",
    "running_task",
    "wait_for_end",
]
