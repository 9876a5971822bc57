"""The files of the working folder, as the gateway asks for them: what there is, and parts of it."""

from __future__ import annotations

import base64
import os
import stat
from typing import Any

PASSED_OVER = "__pycache__"


class Folder:
    """The working folder. Paths are relative to it, with `/`."""

    def __init__(self, root: str) -> None:
        self._root = root

    def list(self, limit: int) -> dict[str, Any]:
        """Up to `limit` regular files, each with its path, inode, size and time of change; none that is hidden."""
        found: list[tuple[str, int, int, int]] = []
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in sorted(os.scandir(os.path.join(self._root, folder)), key=_name):
                if entry.name.startswith(".") or entry.name == PASSED_OVER or not _is_text(entry):
                    continue
                path = folder + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path + "/")
                elif entry.is_file(follow_symlinks=False):
                    if len(found) == limit:
                        return {"files": found, "more": True}
                    about = entry.stat(follow_symlinks=False)
                    found.append((path, about.st_ino, about.st_size, about.st_mtime_ns))
        return {"files": found, "more": False}

    def read(self, path: str, offset: int, size: int) -> dict[str, Any]:
        descriptor = os.open(
            os.path.join(self._root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{path} is no file any more")
            return {"data": base64.b64encode(os.pread(descriptor, size, offset)).decode()}
        finally:
            os.close(descriptor)

    def write(self, path: str, offset: int, data: str) -> dict[str, Any]:
        """At offset 0 the file is made anew. Answers what `list` says of it."""
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
    """Whether its name is Unicode: others cannot be told of."""
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return False
    return True
