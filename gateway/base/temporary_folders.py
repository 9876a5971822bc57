"""Temporary folders that are eventually removed even if their process is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from gateway.base.errors import ConfigurationError


class TemporaryFolder:
    """A folder in the system's temporary folder that only this user can access. Removed by `remove` or by leaving the
    context.

    The process holds a lock on the folder, which the system releases when the process ends. Creating a folder first
    removes folders of the same `name` that ended processes have left; this blocks. Raises `ConfigurationError` if no
    folder for temporary files can be written.
    """

    def __init__(self, name: str) -> None:
        try:
            _remove_abandoned(f"{name}-")
            self.path, self._lock = _create(f"{name}-")
        except OSError as error:
            raise ConfigurationError(
                f"No folder for temporary files can be written ({error.strerror or error}): set TMPDIR to one, or mount one at /tmp."
            ) from error
        self._removed = False

    def remove(self) -> None:
        """Remove the folder and its contents, as far as possible. Does nothing if it was removed before."""
        if not self._removed:
            self._removed = True
            _remove(self.path, self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def _create(prefix: str) -> tuple[Path, int]:
    """Create a folder. Returns it, and the file descriptor that locks it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        # Until it is locked, another process may find it abandoned and remove it.
        with suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(folder)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _remove_abandoned(prefix: str) -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for folder in found:
        try:
            lock = _lock(folder)
        except OSError:  # in use, or owned by another user
            continue
        _remove(folder, lock)


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _lock(folder: Path) -> int:
    """Lock the folder, and return the file descriptor that holds the lock. Raises `BlockingIOError` if the folder is
    locked already, and `OSError` if it is not a folder of this user."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
