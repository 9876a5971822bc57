"""The files of the working folder: listing them, and reading and writing parts of them."""

from __future__ import annotations

import base64
import os
import stat
from typing import Any

PASSED_OVER = "__pycache__"
MAX_DEPTH = 32
"""Maximum folder depth that is listed."""
MAX_NAMES = 2 * 1024 * 1024
"""Maximum total length of the paths in a list, in characters."""


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
                entries = sorted(os.scandir(os.path.join(self._root, folder)), key=_name)
            except (FileNotFoundError, NotADirectoryError):
                continue  # running processes may change it meanwhile
            except OSError:
                unread = unread or folder
                continue
            for entry in entries:
                if entry.name.startswith(".") or entry.name == PASSED_OVER or not _is_text(entry):
                    continue
                path = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path + "/")
                elif entry.is_file(follow_symlinks=False):
                    room -= len(path)
                    if len(found) == limit or room < 0:
                        return {"files": found, "more": True, "unread": unread}
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    found.append((path, about.st_ino, about.st_size, about.st_mtime_ns))
        return {"files": found, "more": False, "unread": unread}

    def read(self, path: str, offset: int, size: int) -> dict[str, Any]:
        descriptor = os.open(
            os.path.join(self._root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{path} is not a file any more")
            return {"data": base64.b64encode(os.pread(descriptor, size, offset)).decode()}
        finally:
            os.close(descriptor)

    def write(self, path: str, offset: int, data: str) -> dict[str, Any]:
        """Write part of a file. Offset 0 creates the file anew. Answers with the file's entry as in `list`."""
        whole = os.path.join(self._root, path)
        if offset == 0:
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            if os.path.lexists(whole):
                os.unlink(whole)
        new = os.O_CREAT | os.O_EXCL if offset == 0 else 0
        descriptor = os.open(whole, os.O_WRONLY | os.O_NOFOLLOW | new, 0o644)
        try:
            left = base64.b64decode(data)
            while left:
                written = os.pwrite(descriptor, left, offset)
                left, offset = left[written:], offset + written
            about = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return {"file": (path, about.st_ino, about.st_size, about.st_mtime_ns)}

    def remove(self, path: str) -> dict[str, Any]:
        whole = os.path.join(self._root, path)
        if os.path.lexists(whole):
            os.unlink(whole)
        return {}


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _is_text(entry: os.DirEntry[str]) -> bool:
    """Whether the name is valid Unicode; other names cannot be reported."""
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return False
    return True
