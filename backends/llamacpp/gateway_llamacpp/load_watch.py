"""Shows how much of a model is loaded.

llama.cpp reports no progress, and its loading holds Python's interpreter lock, so a second process watches how the memory of
the first grows. Run as a program, `python -m gateway_llamacpp.load_watch PID NAME BYTES BEFORE`, it is that process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.sdk.hub import progress

SMALLEST = 256 * 2**20
"""Smaller models, in bytes, load before progress could be read."""
INTERVAL = 0.25
"""Seconds between two looks."""


@contextmanager
def loading_progress(name: str, size: int, log: logging.Logger) -> Iterator[None]:
    """Show, while the body runs, how the memory of this process grows by `size` bytes. On Linux; elsewhere nothing is shown.

    Nothing is shown either if `log` takes no lines and standard error is not a terminal.
    """
    wanted = sys.stderr.isatty() or log.isEnabledFor(logging.INFO)
    before = _resident(os.getpid())
    if size < SMALLEST or not wanted or before is None:
        yield
        return
    command = [
        sys.executable, "-m", "gateway_llamacpp.load_watch", str(os.getpid()), name, str(size), str(before),
    ]  # fmt: skip
    # In a session of its own, because Ctrl-C is not for it.
    watcher = subprocess.Popen(  # noqa: S603  # our own module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        watcher.terminate()
        watcher.wait()


def watch(pid: int, name: str, size: int, before: int) -> None:
    """Show how the memory of process `pid`, the parent, grows from `before` on, until it has grown by `size` bytes or has
    ended."""
    seen = 0
    with progress(f"loading {name}", size) as shown:
        while seen < size:
            time.sleep(INTERVAL)
            now = _resident(pid)
            if now is None or os.getppid() != pid:
                return
            grown = min(max(now - before, seen), size)
            shown.advance(grown - seen)
            seen = grown


def _resident(pid: int) -> int | None:
    """The memory of a process in bytes; None if it has ended, or on systems without `/proc`."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that a bar ends its line
    watch(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
