"""Ends a child process when its parent ends, even if the parent is killed."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing.process import BaseProcess
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> None:
    """Send SIGTERM to this process, a child started by multiprocessing, when its parent has ended.

    Call this first. Until a handler for SIGTERM is installed, the signal ends the process without a graceful stop.
    On Linux the kernel sends the signal, whatever the threads of this process do. The parent must have started this
    process in a thread that lives as long as the parent.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a child process"
    if sys.platform == "linux":
        terminate_with_parent(parent.pid)
    else:
        threading.Thread(target=_wait, args=(parent,), name="parent", daemon=True).start()


def terminate_with_parent(parent: int | None) -> None:
    """Let the kernel send SIGTERM to this process when its parent, with the process id `parent`, has ended. Linux
    only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), signal.SIGTERM)


def _wait(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
