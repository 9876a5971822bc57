"""Prepares the process environment for vLLM and its child processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

from gateway_vllm.child import MARK
from gateway_vllm.config import VllmConfig


def set_defaults(config: VllmConfig) -> None:
    """Set the environment variables that vLLM reads on import. Values set by the user are kept, except the start method
    of child processes."""
    defaults = {
        # Self-hosted servers do not report usage statistics by default.
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": config.log_level.upper(),
    }
    if config.structured_outputs == "xgrammar":
        # A helper process has compiled each pattern within the server's limit (see `gateway_vllm.enforcer`). vLLM's own limit
        # cannot stop its compilation: it would only fail admitted requests while the machine is busy.
        defaults["VLLM_REGEX_COMPILATION_TIMEOUT_S"] = "0"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    # Overrides the user's value: a forked child would inherit the listening socket and client connections.
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    os.environ[MARK] = "1"


@contextmanager
def children_without_interrupts() -> Iterator[None]:
    """Processes started by this thread inside the context do not receive SIGINT.

    A terminal sends Ctrl-C to every process of the foreground group. vLLM's engine process would then abort all
    requests while the server still drains its streams. The engine process is ended with SIGTERM instead.
    """
    # multiprocessing would otherwise start this helper process later and unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
