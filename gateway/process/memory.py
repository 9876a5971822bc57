"""Returning freed memory to the system."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

GROWTH: Final = 8 << 20
"""Growth of the resident memory, in bytes, after which the memory is trimmed."""
_FIRST_PAUSE: Final = 5
_LONGEST_PAUSE: Final = 300
"""Minimum and maximum number of checks between two trims. The number doubles while the memory stays in use."""
_BUSY_PAUSE: Final = 60
"""Maximum number of checks by which a trim is delayed while requests run, because it locks the C library's heap for
some milliseconds."""


class MemoryTrimmer:
    """Returns freed memory to the system after the process has grown.

    The C library keeps memory that large answers have used, because small objects occupy parts of it. Without
    trimming, the process stays as large as it was at its busiest moment.
    """

    def __init__(self, resident: Callable[[], int], trim: Callable[[], object]) -> None:
        """`resident` returns the resident memory in bytes. `trim` returns free memory to the system; it is called in a
        thread."""
        self._resident = resident
        self._trim = trim
        self._least = self._left = resident()
        """The least resident memory so far, and the resident memory after the last trim."""
        self._wait = 0
        self._pause = _FIRST_PAUSE
        self._busy = 0
        self._trimming: asyncio.Future[object] | None = None

    def check(self, *, idle: bool) -> None:
        """Trim the memory if necessary. Call this on the event loop, about once a second; it does not block.

        `idle`: whether no request runs.
        """
        try:
            resident = self._resident()
        except OSError:  # no file can be opened now
            return
        if self._trimming is not None:
            if not self._trimming.done():
                return
            self._trimming, self._left = None, resident
        self._least = min(self._least, resident)
        if resident <= self._least + GROWTH:
            self._wait, self._pause = 0, _FIRST_PAUSE
            return
        if resident > self._left + GROWTH:
            self._pause = _FIRST_PAUSE
        self._wait = min(self._wait, self._pause)
        if self._wait:
            self._wait -= 1
            return
        if not idle and self._busy < _BUSY_PAUSE:
            self._busy += 1
            return
        self._busy = 0
        # Try again later: memory that is in use now may be free then, which cannot be seen from outside.
        self._wait, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        with suppress(RuntimeError):  # no thread can be started now
            self._trimming = asyncio.get_running_loop().run_in_executor(None, self._trim)


def memory_trimmer() -> MemoryTrimmer | None:
    """Create the trimmer of this process; None if the C library has no `malloc_trim`, which only glibc has."""
    file = Path("/proc/self/statm")
    try:
        trim = ctypes.CDLL(None).malloc_trim
        page = os.sysconf("SC_PAGE_SIZE")
        file.read_bytes()
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    # ctypes releases the interpreter's lock during the call.
    return MemoryTrimmer(lambda: int(file.read_bytes().split()[1]) * page, lambda: trim(0))
