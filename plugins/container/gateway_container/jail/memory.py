"""Memory limit of a sandbox that has no cgroup: memory is sampled at short intervals, and the largest process is
killed."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from typing import NamedTuple

_PAUSE, _SHORT_PAUSE = 50, 10
"""Milliseconds between two samples. The short interval is used above half of the limit."""
_SHARED = b"/dev/zero (deleted)"
"""The kernel's name for anonymous shared memory. It counts as used while it is mapped, resident or not."""


_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEFAULTS = {
    "net/core/wmem_default": 212_992,
    "fs/pipe-max-size": 1_048_576,
    "fs/pipe-user-pages-soft": 16_384,
}
_SHARE_OF_SEARCHES = 4
"""Searching descriptors takes at most one part of this many of the time."""


class _MemoryUsage(NamedTuple):
    own: int
    reserved: int
    descriptors: int
    """At least the number of its open descriptors."""
    shared: dict[bytes, int]
    """Shared memory by inode, since several processes may map the same."""


def watch_memory(
    top: int, limit: int, *, until: int | None = None, buffers: Buffers | None = None
) -> None:
    """Keep the memory of the processes below `top` within `limit` bytes. Returns when `until`, or else `top`, has
    ended.

    With `buffers`, what pipes and sockets may hold counts as well: this process must then be in the network namespace of the
    sandbox, and the system call filter must be in force.
    """
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
            held: dict[int, int] = {}
            if buffers is not None:
                total += buffers.measure(used, limit - total)
                held = buffers.by_process
            pause = _PAUSE if total <= limit // 2 else _SHORT_PAUSE
            if total > limit and used:
                largest = max(
                    used,
                    key=lambda each: (
                        used[each].own + sum(used[each].shared.values()) + held.get(each, 0)
                    ),
                )
                with suppress(ProcessLookupError):
                    os.kill(largest, signal.SIGKILL)
    finally:
        os.close(descriptor)


class Buffers:
    """The memory that pipes and sockets may hold for the processes of a sandbox, and that is in no process' own."""

    def __init__(self) -> None:
        """To be called in the machine's network namespace."""
        send_buffer = _setting("net/core/wmem_default")
        # A buffer that has room takes one more message, of up to half its size.
        self._socket = send_buffer + send_buffer // 2
        # An ordinary user may enlarge pipes until all of the user's pipes have so many pages. Further pipes have two.
        self._largest_pipe = _setting("fs/pipe-max-size")
        self._all_pipes = _setting("fs/pipe-user-pages-soft") * _PAGE
        self._found = 0
        self._next_search = 0.0
        self.by_process: dict[int, int] = {}

    def measure(self, used: dict[int, _MemoryUsage], room: int) -> int:
        """Bytes, at most. The number of pipes is exact only if they might exceed `room`, since to count them takes long."""
        sockets = _sockets() * self._socket
        if sockets + self._pipes(sum(each.descriptors for each in used.values())) <= room:
            self.by_process = {}
            return sockets
        began = time.monotonic()
        if began >= self._next_search:
            self._search(used)
            now = time.monotonic()
            self._next_search = now + (_SHARE_OF_SEARCHES - 1) * (now - began)
        return sockets + self._pipes(self._found)

    def _pipes(self, number: int) -> int:
        enlarged = number * self._largest_pipe
        if self._all_pipes:
            enlarged = min(enlarged, self._all_pipes)
        return enlarged + number * 2 * _PAGE

    def _search(self, used: dict[int, _MemoryUsage]) -> None:
        pipes: set[str] = set()
        self.by_process = {}
        for process in used:
            held = 0
            for link in _descriptors(process):
                if link.startswith("pipe:"):
                    pipes.add(link)
                    held += self._pipes(1)
                elif link.startswith("socket:"):
                    held += self._socket
            self.by_process[process] = held
        self._found = len(pipes)


def _sockets() -> int:
    """The number of sockets in this process' network namespace, those that are in flight between processes included."""
    with suppress(OSError, ValueError), open("/proc/self/net/sockstat", encoding="ascii") as file:
        return int(file.readline().split()[2])
    return 0


def _descriptors(process: int) -> list[str]:
    folder = f"/proc/{process}/fd"
    links = []
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                links.append(os.readlink(f"{folder}/{name}"))
    return links


def _setting(name: str) -> int:
    """A setting of the kernel, in /proc/sys."""
    with suppress(OSError, ValueError), open(f"/proc/sys/{name}", "rb") as file:
        return int(file.read())
    return _DEFAULTS[name]


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
    # Page tables, and huge pages, are in no other number.
    own = (b"RssAnon", b"VmSwap", b"VmPTE", b"HugetlbPages")
    size = {name: int(fields.get(name, b"0").split()[0]) * 1024 for name in own}
    reserved = int(fields[b"VmSize"].split()[0]) * 1024
    return _MemoryUsage(sum(size.values()), reserved, int(fields[b"FDSize"]), {})


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
