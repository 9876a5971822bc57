"""Running functions in helper processes, which are killed at a deadline; folders that end with their process."""

from gateway.process_pool import (
    DeadlineExceeded,
    FunctionFailed,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    wait_for_end,
)
from gateway.temporary_folders import (
    TemporaryFolder,
)

__all__ = [
    "DeadlineExceeded",
    "FunctionFailed",
    "HelperFailure",
    "PoolBusy",
    "ProcessPool",
    "TemporaryFolder",
    "wait_for_end",
]
