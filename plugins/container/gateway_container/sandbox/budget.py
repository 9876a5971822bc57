"""The memory budget of all sandboxes, shared by the worker processes of one server."""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.sdk import ConfigurationError
from gateway.sdk.processes import TemporaryFolder

_LEDGER = "ledger"


class BudgetExceeded(Exception):
    """What is reserved leaves too little memory."""

    def __init__(self, *, of_owner: bool) -> None:
        """`of_owner`: it is the share of the owner that is exceeded, and not the budget."""
        super().__init__()
        self.of_owner = of_owner


class Budget:
    """Made by `open_budget`. A reservation is a locked file: the kernel releases it if the process dies."""

    def __init__(self, total: int, folder: Path) -> None:
        self.total = total
        self._folder = folder

    def reserve(self, size: int, owner: str = "") -> int:
        """Reserve `size` bytes. Returns a handle for `release`. Raises `BudgetExceeded`.

        One owner may reserve all but a quarter, if a quarter is enough for a reservation of that size. What has no owner may
        reserve all.
        """
        named = hashlib.sha256(owner.encode()).hexdigest()[:16] if owner else "none"
        with self._locked():
            reserved = self._reserved()
            spare = self.total // 4
            if owner and spare >= size and reserved[named] + size > self.total - spare:
                raise BudgetExceeded(of_owner=True)
            if reserved.total() + size > self.total:
                raise BudgetExceeded(of_owner=False)
            descriptor, _ = tempfile.mkstemp(prefix=f"{size}-{named}-", dir=self._folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return descriptor

    def release(self, reservation: int) -> None:
        os.close(reservation)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock for a few system calls only."""
        descriptor = os.open(self._folder / _LEDGER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _reserved(self) -> Counter[str]:
        """The reserved bytes of each owner. Removes files of reservations that were released."""
        total: Counter[str] = Counter()
        for path in self._folder.glob("*-*-*"):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                size, owner, _ = path.name.split("-", 2)
                total[owner] += int(size)
            else:
                path.unlink()
            finally:
                os.close(descriptor)
        return total


@contextmanager
def open_budget(configured: int | None, one: int) -> Iterator[Budget]:
    """The budget of this server. Raises `ConfigurationError` if a single sandbox (`one` bytes) exceeds it."""
    total = configured or available_memory() // 2
    if one > total:
        of = "`max_total_memory_bytes`" if configured else "half of the memory of this machine"
        raise ConfigurationError(
            f"[resources.containers]: one container may take {one} bytes of memory, more than {of}, {total} bytes. "
            "Lower `max_memory_bytes`, or raise `max_total_memory_bytes`."
        )
    parent = multiprocessing.parent_process()
    if parent is None:
        with TemporaryFolder("litegate-budget") as made:
            yield Budget(total, made)
        return
    folder = Path(tempfile.gettempdir()) / f"litegate-memory-{os.getuid()}-{parent.pid}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if folder.is_symlink() or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise ConfigurationError(
            f"[resources.containers]: the folder {folder} belongs to another user. Remove it."
        )
    try:
        yield Budget(total, folder)
    finally:
        with suppress(OSError):  # other workers may still use it
            for path in (*folder.glob("*-*-*"), folder / _LEDGER):
                if not _is_locked(path):
                    path.unlink()
            folder.rmdir()


def _is_locked(path: Path) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def available_memory() -> int:
    """The memory available to this process in bytes: that of the machine, or the limit of its cgroup if lower."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _cgroup_limits():
        found = min(found, limit)
    return found


def _cgroup_limits() -> Iterator[int]:
    root = Path("/sys/fs/cgroup")
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                group = root / controllers / path.lstrip("/")
                # If the group's own folder is not visible, as in a container, the visible root is the group.
                for folder in (group, *group.parents):
                    for name in ("memory.max", "memory.limit_in_bytes"):
                        with suppress(OSError, ValueError):  # "max" means no limit
                            yield int((folder / name).read_text())
                    if folder == root:
                        break
