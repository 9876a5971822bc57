"""Code that exchanges its folders for links while the agent lists, reads and writes files."""

from __future__ import annotations

import base64
import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway_container.inside.files import Folder

SECRET = b"what the agent may read and code may not"
_AT_FDCWD, _EXCHANGE = -100, 2


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "maps").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "d" / "maps").write_bytes(b"own")
    (folder / "d" / "e" / "maps").write_bytes(b"own")
    return folder


@contextmanager
def exchanged_all_the_time(one: Path, other: Path) -> Iterator[None]:
    """Two names that are exchanged, in one step of the kernel each time, until the context is left."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            libc.renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _EXCHANGE)

    if libc.renameat2(_AT_FDCWD, bytes(one), _AT_FDCWD, bytes(other), _EXCHANGE) != 0:
        pytest.skip("names cannot be exchanged here")
    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("path", ["d/maps", "d/e/maps"])
def test_a_folder_that_became_a_link_is_not_read(root: Path, outside: Path, path: str) -> None:
    folder = (root / path).parent
    folder.rename(root / "kept")
    folder.symlink_to(outside)
    files = Folder(str(root))
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        files.read(path, 0, 1000)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        files.write(path, 0, base64.b64encode(b"x").decode())
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        files.write(path, 3, base64.b64encode(b"x").decode())
    files.remove(path)
    assert (outside / "maps").read_bytes() == SECRET
    listed = files.list(100)
    assert {each[0] for each in listed["files"]} == {
        str(each.relative_to(root)) for each in root.rglob("maps") if not each.parent.is_symlink()
    } - {"d/e/maps" if path == "d/e/maps" else ""}


def test_a_folder_that_becomes_a_link_at_any_moment_shows_nothing(
    root: Path, outside: Path
) -> None:
    (root / "link").symlink_to(outside)
    files = Folder(str(root))
    refused = own = 0
    with exchanged_all_the_time(root / "d", root / "link"):
        for _ in range(3000):
            try:
                data = base64.b64decode(files.read("d/maps", 0, 1000)["data"])
            except OSError:
                refused += 1
            else:
                own += 1
                assert data == b"own"
            for path, _, size, _ in files.list(100)["files"]:
                assert size < len(SECRET), path
            with suppress(OSError):
                files.write("d/new", 0, base64.b64encode(b"mine").decode())
            files.remove("d/new")
    assert refused
    assert own
    assert sorted(os.listdir(outside)) == ["maps"]
    assert (outside / "maps").read_bytes() == SECRET


@pytest.mark.parametrize(
    "path", ["../outside/maps", "d/../../outside/maps", "/etc/passwd", "./d/maps"]
)
def test_a_path_stays_below_the_folder(root: Path, outside: Path, path: str) -> None:
    with pytest.raises((OSError, ValueError)):
        Folder(str(root)).read(path, 0, 1000)


def test_what_is_no_file_any_more_is_neither_read_nor_written(root: Path) -> None:
    files = Folder(str(root))
    os.mkfifo(root / "pipe")
    with pytest.raises((OSError, ValueError)):
        files.read("pipe", 0, 1)
    with pytest.raises((OSError, ValueError)):
        files.write("pipe", 1, "eA==")
    assert files.write("pipe", 0, "eA==")["file"][2] == 1, "a new file takes its place"
    assert files.write("new/folder/file", 0, "eA==")["file"][0] == "new/folder/file"
    assert (root / "new/folder/file").read_bytes() == b"x"


def test_what_is_reached_by_the_root_is_the_folder_itself(root: Path, outside: Path) -> None:
    root.rename(root.with_name("kept"))
    root.symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        Folder(str(root)).read("maps", 0, 10)
