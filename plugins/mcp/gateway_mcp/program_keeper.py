"""Runs the program of a configured MCP server, and ends it with the gateway, however that ends.

Started as a script, by the interpreter alone: `program_keeper.py GATEWAY PROGRAM [ARGUMENT…]`, where GATEWAY is the process id of the
gateway. The program has the standard streams of this process, and its exit code becomes that of this process. This process reaps what
the program leaves behind, and when the gateway has ended or asks for it (SIGTERM), it ends the program and all of its process group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SECONDS = 2.0
"""Seconds between asking the program to end and killing it."""


def command_with_keeper(command: list[str]) -> list[str]:
    """The command line that runs `command` in this way; on other systems than Linux, `command` itself."""
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main(gateway: int, command: list[str]) -> int:
    """Run `command` until it ends. Returns its exit code, or 128 plus the signal that ended it."""
    prctl = ctypes.CDLL(None).prctl
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_STOPS, signal.SIGCHLD))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != gateway:
        return 1  # it ended before the kernel was told to watch it
    keeper = os.getpid()
    program = os.fork()
    if not program:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        _execute(command, before)
    # The program's streams are its own: their ends must be noticed.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    end: float | None = None
    code: int | None = None
    while True:
        if end is None:
            received = signal.sigwait((*_STOPS, signal.SIGCHLD))
        else:
            found = signal.sigtimedwait((*_STOPS, signal.SIGCHLD), max(end - time.monotonic(), 0.0))
            if found is None:
                os.killpg(0, signal.SIGKILL)  # this process is in the group
            received = signal.SIGCHLD
        ended, left = _reap()
        code = ended.get(program, code)
        if code is not None and (end is None or not left):
            return code
        if received != signal.SIGCHLD and end is None:
            end = time.monotonic() + _SECONDS
            os.killpg(0, signal.SIGTERM)


def _execute(command: list[str], mask: set[int | signal.Signals]) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
    os._exit(127)


def _reap() -> tuple[dict[int, int], bool]:
    """Reap what has ended. Exit codes by process, and whether there are further processes below this one."""
    codes: dict[int, int] = {}
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes, False
        if not ended:
            return codes, True
        code = os.waitstatus_to_exitcode(status)
        codes[ended] = code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
