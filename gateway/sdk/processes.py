"""Running functions in helper processes, which are killed at a deadline; folders that end with their process."""

from gateway.process_pool import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)
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
    "wait_for_end",
]
