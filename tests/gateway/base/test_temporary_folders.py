"""Temporary folders: private, and removed even if their process was killed."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.base.temporary_folders import TemporaryFolder

HOLDER = """
import sys, tempfile
from gateway.base.temporary_folders import TemporaryFolder
tempfile.tempdir = sys.argv[1]
folder = TemporaryFolder(sys.argv[2])
(folder.path / "file").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, for this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


Hold = Callable[[], tuple[Path, "subprocess.Popen[str]"]]


@pytest.fixture
def hold(temporary: Path) -> Iterator[Hold]:
    """Start a process that has a folder of the name `model`."""
    processes: list[subprocess.Popen[str]] = []

    def start() -> tuple[Path, subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(temporary), "model"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        return Path(process.stdout.readline().strip()), process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_a_folder_is_this_users_alone_and_ends_with_its_context(temporary: Path) -> None:
    with TemporaryFolder("model") as folder:
        assert folder.parent == temporary
        assert folder.name.startswith("model-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("x")
    assert not list(temporary.iterdir())


def test_to_remove_it_twice_does_nothing(temporary: Path) -> None:
    folder = TemporaryFolder("model")
    folder.remove()
    folder.path.mkdir()
    folder.remove()
    assert folder.path.exists()


def test_what_a_killed_process_has_left_is_removed_by_the_next(temporary: Path, hold: Hold) -> None:
    left, process = hold()
    process.kill()
    process.wait()
    assert (left / "file").exists()
    with TemporaryFolder("model") as folder:
        assert list(temporary.iterdir()) == [folder]


def test_what_is_in_use_stays(temporary: Path, hold: Hold) -> None:
    used, process = hold()
    assert process.poll() is None
    with TemporaryFolder("model") as one, TemporaryFolder("model") as other:
        assert {*temporary.iterdir()} == {used, one, other}
    assert [*temporary.iterdir()] == [used]


def test_what_has_another_name_or_is_a_link_or_a_file_stays(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").write_text("x")
    (temporary / "model-link").symlink_to(elsewhere)
    (temporary / "model-file").write_text("x")
    (temporary / "models-abc").mkdir()
    TemporaryFolder("model").remove()
    assert sorted(path.name for path in temporary.iterdir()) == [
        "model-file",
        "model-link",
        "models-abc",
    ]
    assert (elsewhere / "file").exists()


def test_a_machine_without_a_folder_for_temporary_files_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose root is read-only."""

    def none() -> str:
        raise FileNotFoundError(
            errno.ENOENT, "No usable temporary directory found in ['/tmp', '/']"
        )

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(
        ConfigurationError, match=r"No folder for .* in \['/tmp', '/'\]\): set TMPDIR"
    ):
        TemporaryFolder("gateway-test")
    monkeypatch.undo()
    # TMPDIR names one that has gone since.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match="set TMPDIR"):
        TemporaryFolder("gateway-test")
