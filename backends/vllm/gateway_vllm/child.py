"""Code that runs inside vLLM's own processes and ends them with the server, however it ends.

vLLM calls `end_with_parent` in each of its processes, through the entry point group `vllm.general_plugins`. Without it,
a killed server would leave behind an engine that holds the accelerator's memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

MARK = "LITEGATE_VLLM_ENDS_WITH_PARENT"
"""Environment variable that the server sets for its children. Processes without it are left alone."""
_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""


def end_with_parent() -> None:
    """End this process when its parent ends. Does nothing outside the server's children."""
    if MARK in os.environ and multiprocessing.parent_process() is not None:
        threading.Thread(target=_wait_and_end, name="litegate-parent", daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
