"""The first process of a container. The kernel makes it the parent of all orphaned processes, which it must reap."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


def leave_first_process() -> None:
    """If this is process 1, fork: the child returns, and process 1 acts as init and never returns.

    The server must not reap orphans itself, because it could take the exit codes of its own children from the code that
    waits for them. Call this while the process has one thread. Does nothing in other processes.
    """
    if sys.platform != "linux" or os.getpid() != 1:
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
    try:
        server = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return  # serve in this process, without reaping orphans
    if server:
        _be_init(server)
    _take_terminal()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_terminal() -> None:
    """Become the terminal's foreground process group, so that Ctrl-C arrives only once."""
    with suppress(OSError):
        os.setpgid(0, 0)
        if os.isatty(0):
            kept = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            try:
                os.tcsetpgrp(0, os.getpgrp())
            finally:
                signal.signal(signal.SIGTTOU, kept)


def _be_init(server: int) -> NoReturn:
    while True:
        received = signal.sigwait((*_PASSED_ON, signal.SIGCHLD))
        if received != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(server, received)
            continue
        with suppress(ChildProcessError):
            while True:
                ended, status = os.waitpid(-1, os.WNOHANG)
                if not ended:
                    break
                if ended == server:
                    code = os.waitstatus_to_exitcode(status)
                    os._exit(code if code >= 0 else 128 - code)
