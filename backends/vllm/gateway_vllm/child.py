"""What runs inside vLLM's own processes: they end with the server, however it ends.

vLLM calls `end_with_parent` in each of its processes, by the entry point group `vllm.general_plugins`. Without it, a
server that is killed leaves behind an engine that holds the accelerator's memory.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

MARK = "LITEGATE_VLLM_ENDS_WITH_PARENT"
"""Set by the server for its children; vLLM used without Litegate is left alone."""
_GRACE = 10.0
"""Seconds between asking and killing."""


def end_with_parent() -> None:
    """Have this process end once its parent has. Does nothing outside of the server's children."""
    if MARK in os.environ and multiprocessing.parent_process() is not None:
        threading.Thread(target=_wait_and_end, name="litegate-parent", daemon=True).start()


def _wait_and_end() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os.kill(os.getpid(), signal.SIGKILL)
