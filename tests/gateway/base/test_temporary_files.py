"""Files that are in memory while they are small."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import pytest

from gateway.base.errors import StoreUnavailable
from gateway.base.temporary_files import temporary_file


def full_disk(**_: Any) -> IO[bytes]:
    return open("/dev/full", "w+b")


@pytest.mark.parametrize("size", [5, 5_000, 500_000])
def test_what_was_written_is_read(size: int) -> None:
    data = bytes(range(250)) * (size // 250) + b"x" * (size % 250)
    with temporary_file(1_000) as content:
        content.write(data)
        content.flush()
        assert content.tell() == size
        content.seek(0)
        assert content.read() == data
    assert content.closed


@pytest.mark.parametrize("size", [1_001, 500_000])
def test_a_full_disk_is_a_sentence_and_the_file_is_closed(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", full_disk)
    with (
        pytest.raises(StoreUnavailable, match=r"cannot keep this file now .*Retry later"),
        temporary_file(1_000) as content,
    ):
        content.write(b"x" * size)
        content.flush()
    assert content.closed


def test_small_files_need_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", full_disk)
    with temporary_file(1_000) as content:
        content.write(b"x" * 1_000)
        content.flush()
        assert content.tell() == 1_000
