"""The process around vLLM: its environment, and what its child processes inherit."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from gateway_vllm.child import MARK
from gateway_vllm.config import Config


def set_defaults(config: Config) -> None:
    """Set what vLLM reads from the environment when it is imported; what the user has set stays as it is."""
    defaults = {
        # A server that somebody hosts for themselves does not tell others about it.
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": config.log_level.upper(),
        # A forked child would hold the server's sockets, and copies of locks that other threads have taken.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    os.environ[MARK] = "1"


@contextmanager
def children_without_interrupts() -> Iterator[None]:
    """Processes that this thread starts inside do not receive SIGINT.

    A terminal sends Ctrl-C to every process of the foreground group. vLLM's engine process would take that as the order
    to abort all requests, while the server still lets its streams end. It ends by SIGTERM, which the server sends it.
    """
    # Starting this helper process, as multiprocessing otherwise does in between, would unblock the signal again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
