"""File descriptors of child processes: they inherit only those that are passed explicitly."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

_FIRST = 3
"""The first descriptor after the standard streams, which are not changed."""
_LAST = 0xFFFFFFFF
_CLOSE_RANGE = 436
"""The number of the system call, which is the same on all architectures of Linux."""
_CLOEXEC = 4
"""`CLOSE_RANGE_CLOEXEC` of <linux/close_range.h>."""


def close_all_on_exec() -> None:
    """Mark every open descriptor above the standard streams as close-on-exec.

    Python opens its descriptors that way, but C libraries may not, and a process spawned by multiprocessing receives
    inheritable descriptors. Does not raise.
    """
    if not _mark_range():
        _mark_one_by_one()


def _mark_range() -> bool:
    """Mark all descriptors with one system call (Linux 5.11 and newer). Returns whether this succeeded."""
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    first, last, flags = map(ctypes.c_uint, (_FIRST, _LAST, _CLOEXEC))
    return bool(call(ctypes.c_long(_CLOSE_RANGE), first, last, flags) == 0)


def _mark_one_by_one() -> None:
    for name in os.listdir("/dev/fd"):
        with suppress(OSError, ValueError):  # it may have been closed meanwhile
            if int(name) >= _FIRST:
                os.set_inheritable(int(name), False)
