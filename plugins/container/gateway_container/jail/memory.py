"""Memory limit of a sandbox that has no cgroup: memory is sampled at short intervals, and the largest process is
killed."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import NamedTuple

_PAUSE, _SHORT_PAUSE = 50, 10
"""Milliseconds between two samples. The short interval is used above half of the limit."""
_SHARED = b"/dev/zero (deleted)"
"""The kernel's name for anonymous shared memory. It counts as used while it is mapped, resident or not."""


class _MemoryUsage(NamedTuple):
    own: int
    reserved: int
    shared: dict[bytes, int]
    """Shared memory by inode, since several processes may map the same."""


def watch_memory(top: int, limit: int, *, until: int | None = None) -> None:
    """Keep the memory of the processes below `top` within `limit` bytes. Returns when `until`, or else `top`, has
    ended."""
    ended = select.poll()
    descriptor = os.pidfd_open(until or top)
    try:
        ended.register(descriptor, select.POLLIN)
        pause = _PAUSE
        while not ended.poll(pause):
            processes = [each for each in _process_tree(top) if each != top]
            used = {each: found for each in processes if (found := _try_to_measure(each))}
            total = sum(each.own for each in used.values())
            if total > limit:  # memory shared by forked processes was counted for each of them
                used = {each: _proportional(each, found) for each, found in used.items()}
                total = sum(each.own for each in used.values())
            if sum(each.reserved for each in used.values()) > limit:
                total += sum(_shared_by_all(used))
            pause = _PAUSE if total <= limit // 2 else _SHORT_PAUSE
            if total > limit:
                largest = max(
                    used, key=lambda each: used[each].own + sum(used[each].shared.values())
                )
                with suppress(ProcessLookupError):
                    os.kill(largest, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _shared_by_all(used: dict[int, _MemoryUsage]) -> list[int]:
    found: dict[bytes, int] = {}
    for process, each in used.items():
        try:
            each.shared.update(_shared(process))
        except FileNotFoundError:
            continue
        except OSError:  # not accessible: count all that the process may have
            found[b"%d" % process] = each.reserved
        for inode, size in each.shared.items():
            found[inode] = max(size, found.get(inode, 0))
    return list(found.values())


def _try_to_measure(process: int) -> _MemoryUsage | None:
    try:
        return _measure(process)
    except (OSError, KeyError):
        return None  # the process has ended


def _measure(process: int) -> _MemoryUsage:
    with open(f"/proc/{process}/status", "rb") as file:
        fields = dict(line.split(b":", 1) for line in file)
    size = {
        name: int(fields[name].split()[0]) * 1024 for name in (b"RssAnon", b"VmSwap", b"VmSize")
    }
    return _MemoryUsage(size[b"RssAnon"] + size[b"VmSwap"], size[b"VmSize"], {})


def _proportional(process: int, found: _MemoryUsage) -> _MemoryUsage:
    """The usage of a process with its proportional share of shared memory, which is slower to determine."""
    try:
        with open(f"/proc/{process}/smaps_rollup", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file if b":  " in line)
        parts = [int(fields[name].split()[0]) * 1024 for name in (b"Pss_Anon", b"SwapPss")]
    except (OSError, KeyError):
        return found
    return found._replace(own=sum(parts))


def _shared(process: int) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    with open(f"/proc/{process}/maps", "rb") as file:
        for line in file:
            if line.rstrip().endswith(_SHARED):
                begin, _, end = line.split(maxsplit=1)[0].partition(b"-")
                inode = line.split()[4]
                found[inode] = found.get(inode, 0) + int(end, 16) - int(begin, 16)
    return found


def _process_tree(top: int) -> list[int]:
    """`top` and its descendants. Orphans of a sandbox become children of its first process, so none is missed."""
    found, left = [], [top]
    while left:
        process = left.pop()
        found.append(process)
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{process}/task"):
                with (
                    suppress(OSError),
                    open(f"/proc/{process}/task/{thread}/children", "rb") as file,
                ):
                    left += map(int, file.read().split())
    return found


def require_measurable(process: int) -> None:
    """Raises `OSError` if the memory of `process` and its descendants cannot be measured."""
    try:
        _measure(process)
        with open(f"/proc/{process}/task/{process}/children", "rb"):
            pass
        os.close(os.pidfd_open(process))
    except (OSError, AttributeError) as failure:
        raise OSError(
            f"there is no cgroup for its memory, and it cannot be measured either: {failure}"
        ) from None
