"""Ends the process if it does not end in time after a stop signal, whatever its threads do.

Native code that holds the interpreter's lock blocks all Python threads and signal handlers. This module needs neither:
`faulthandler`'s handler, written in C, writes to a pipe when the signal arrives and then calls the previous handler. A
helper process reads the pipe and kills this process at the deadline.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress

EXIT_CODE = 62
"""The exit code of a process that the watchdog ended. If that fails, the process is ended by SIGKILL."""

# A signal whose handler is libc's `_exit`. It ends a process whatever its threads do, even the first process of a
# container, for which the kernel ignores a SIGKILL from inside. `_exit` receives the signal number, which becomes the
# exit code.
_EXIT_SIGNAL = EXIT_CODE


def end_in_time(seconds: float, signals: Iterable[signal.Signals]) -> None:
    """End this process at most `seconds` after one of `signals`.

    Call it in the main thread, after the handlers of `signals` are installed. A second signal shortens the time to
    `AGAIN_SECONDS`. Does nothing on systems without such handlers (Windows).
    """
    if not hasattr(faulthandler, "register"):
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # a signal handler must not block
    try:
        _install_exit_handler()
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            env={},
            cwd="/",
        )
    except OSError:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    for sig in signals:
        faulthandler.register(sig, file=writing, all_threads=False, chain=True)


def ignore_further(sig: int) -> None:
    """Do not let further signals `sig` shorten the remaining time."""
    if hasattr(faulthandler, "unregister"):
        faulthandler.unregister(sig)


def _install_exit_handler() -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        libc.signal.restype = ctypes.c_void_p
        libc.signal(_EXIT_SIGNAL, ctypes.cast(libc._exit, ctypes.c_void_p))


# The rest runs in the helper process and uses the standard library only.

AGAIN_SECONDS = 5.0
_TRACEBACK = b"most recent call first"
"""Part of the first line of each traceback of `faulthandler`, which writes one for each signal, in several pieces."""
_MAX_TRACEBACK_BYTES = 1 << 20
"""Maximum number of bytes of tracebacks to keep. One traceback has at most a few thousand."""


def watch(parent: int, seconds: float) -> None:
    """Wait until standard input reports a signal; then end `parent`, unless it ends by itself in time."""
    import select
    import time

    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)  # signals to the whole group are meant for the parent
    tracebacks = b""
    end: float | None = None
    while os.getppid() == parent:
        now = time.monotonic()
        if end is not None and now >= end:
            break
        # Woken by the pipe, and periodically in case another process holds the pipe open after the parent ended.
        wait = 5.0 if end is None else min(end - now, 1.0)
        if not select.select([0], [], [], wait)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            return  # the parent has ended
        signals = tracebacks.count(_TRACEBACK)
        tracebacks = (tracebacks + data)[:_MAX_TRACEBACK_BYTES]
        now = time.monotonic()  # `select` may have waited long
        if end is None:
            end = now + seconds
        if tracebacks.count(_TRACEBACK) > max(signals, 1):
            end = min(end, now + AGAIN_SECONDS)
    if os.getppid() != parent:
        return
    line = (
        f"{time.strftime('%Y-%m-%d %H:%M:%S')},000 ERROR   gateway.process.stop_watchdog: process {parent} did not end within "
        f"{seconds:g} s of the stop signal and is ended now; at the signal it was in {place(tracebacks)}\n"
    )
    with suppress(OSError, ValueError):
        if select.select([], [2], [], 1.0)[1]:  # only if writing does not block
            os.write(2, line.encode("utf-8", "replace"))
    with suppress(ProcessLookupError):
        if sys.platform == "linux":
            os.kill(parent, _EXIT_SIGNAL)
            for _ in range(20):
                if os.getppid() != parent:
                    return
                time.sleep(0.05)
        os.kill(parent, signal.SIGKILL)


def place(stack: bytes) -> str:
    """The innermost frame of a traceback written by `faulthandler`."""
    for line in stack.decode("utf-8", "replace").splitlines():
        if line.strip().startswith("File "):
            return line.strip()
    return "native code"


if __name__ == "__main__":
    watch(int(sys.argv[1]), float(sys.argv[2]))
