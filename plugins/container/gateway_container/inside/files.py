"""The files of the working folder: listing them, and reading and writing parts of them.

Code in the sandbox may exchange a folder for a link at any moment. So each folder of a path is opened by its name in the one before
it, and links are followed nowhere.
"""

from __future__ import annotations

import base64
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

PASSED_OVER = "__pycache__"
MAX_DEPTH = 32
"""Maximum folder depth that is listed."""
MAX_NAMES = 2 * 1024 * 1024
"""Maximum total length of the paths in a list, in characters."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """The working folder. Paths are relative to it, with `/`."""

    def __init__(self, root: str) -> None:
        self._root = root

    def list(self, limit: int) -> dict[str, Any]:
        """Up to `limit` regular files, each with its path, inode, size and modification time. Hidden files are left
        out.

        `unread` is a folder that was skipped, if any: it is too deep or unreadable.
        """
        found: list[tuple[str, int, int, int]] = []
        unread: str | None = None
        room = MAX_NAMES
        folders = [""]
        while folders:
            folder = folders.pop()
            if folder.count("/") > MAX_DEPTH:
                unread = unread or folder
                continue
            try:
                with self._opened(folder) as here:
                    for name, about in _entries(here):
                        path = folder + name
                        if stat.S_ISDIR(about.st_mode):
                            folders.append(path + "/")
                        elif stat.S_ISREG(about.st_mode):
                            room -= len(path)
                            if len(found) == limit or room < 0:
                                return {"files": found, "more": True, "unread": unread}
                            found.append((path, about.st_ino, about.st_size, about.st_mtime_ns))
            except (FileNotFoundError, NotADirectoryError):
                continue  # running processes may change it meanwhile
            except OSError as error:
                if error.errno != errno.ELOOP:  # a link by now
                    unread = unread or folder
        return {"files": found, "more": False, "unread": unread}

    def read(self, path: str, offset: int, size: int) -> dict[str, Any]:
        """Part of a file."""
        folder, name = os.path.split(path)
        with self._opened(folder) as here:
            descriptor = os.open(name, os.O_RDONLY | _FILE, dir_fd=here)
        try:
            _require_file(descriptor, path)
            return {"data": base64.b64encode(os.pread(descriptor, size, offset)).decode()}
        finally:
            os.close(descriptor)

    def write(self, path: str, offset: int, data: str) -> dict[str, Any]:
        """Write part of a file. Offset 0 creates the file anew. Answers with the file's entry as in `list`."""
        folder, name = os.path.split(path)
        with self._opened(folder, make=offset == 0) as here:
            if offset == 0:
                _unlink(name, here)
            new = os.O_CREAT | os.O_EXCL if offset == 0 else 0
            descriptor = os.open(name, os.O_WRONLY | _FILE | new, 0o644, dir_fd=here)
        try:
            _require_file(descriptor, path)
            left = base64.b64decode(data)
            while left:
                written = os.pwrite(descriptor, left, offset)
                left, offset = left[written:], offset + written
            about = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return {"file": (path, about.st_ino, about.st_size, about.st_mtime_ns)}

    def remove(self, path: str) -> dict[str, Any]:
        """Remove a file, or what is there in its place by now, if it is no folder."""
        folder, name = os.path.split(path)
        with suppress(FileNotFoundError, NotADirectoryError), self._opened(folder) as here:
            _unlink(name, here)
        return {}

    @contextmanager
    def _opened(self, folder: str, *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder, reached without following a link. `make`: create what is missing of it."""
        here = os.open(self._root, _FOLDER)
        try:
            for name in filter(None, folder.split("/")):
                if name in (".", ".."):
                    raise ValueError(f"{folder} is not below the working folder")
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=here)
                above, here = here, os.open(name, _FOLDER, dir_fd=here)
                os.close(above)
            yield here
        finally:
            os.close(here)


_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """What a folder holds, in the order of the names."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        if name.startswith(".") or name == PASSED_OVER or not _is_text(name):
            continue
        try:
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _require_file(descriptor: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError(f"{path} is not a file any more")


def _is_text(name: str) -> bool:
    """Whether the name is valid Unicode; other names cannot be reported."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
