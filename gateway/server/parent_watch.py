"""Ends a child process when its parent ends, however that ends."""

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
    """Send SIGTERM to this process, a child of multiprocessing, when its parent has ended.

    Call it first: SIGTERM is a graceful stop only once its handler is installed. On Linux the kernel sends it, whatever
    the threads of this process do; the parent must have started it in a thread that lives as long as the parent.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a child process"
    if sys.platform == "linux":
        terminate_with_parent(parent.pid)
    else:
        threading.Thread(target=_wait, args=(parent,), name="parent", daemon=True).start()


def terminate_with_parent(parent: int | None) -> None:
    """Let the kernel send SIGTERM to this process when its parent, of process id `parent`, has ended. On Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it ended before the kernel was told
        os.kill(os.getpid(), signal.SIGTERM)


def _wait(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
