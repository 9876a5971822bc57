"""The resource: its folder, and files that expire."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError, NotFound
from gateway.media.documents.reader import ReadingFailure
from gateway.storage.files.form import FileUpload
from gateway.storage.files.uploaded import uploaded_files
from gateway_files.config import FilesConfig
from gateway_files.files import DATABASE, open_files

pytestmark = pytest.mark.anyio


def upload(seconds: int | None = None) -> FileUpload:
    return FileUpload(
        content=io.BytesIO(b"abc"), filename="a.txt", purpose="vision", seconds=seconds
    )


async def test_expired_files_go_at_the_next_start_and_are_forgotten(tmp_path: Path) -> None:
    config = FilesConfig(path=str(tmp_path))
    forgotten: list[str] = []

    async def forget(file_ids: Sequence[str]) -> None:
        forgotten.extend(file_ids)

    async with open_files(config) as files:
        gone, stays = await files.add("", upload(3600)), await files.add("", upload())
        with files.forgotten_by(forget):
            await files.database.write(
                lambda c: c.execute("UPDATE files SET expires_at = 1 WHERE id = ?", (gone.id,))
            )
            with pytest.raises(NotFound):
                await files.read("", gone.id, max_bytes=9)
            await files.remove_expired()
        assert set(forgotten) == {gone.id}
        assert await files.find("", [gone.id, stays.id]) == {stays.id: stays}


async def test_the_text_of_a_file_is_for_its_owner() -> None:
    async with open_files(FilesConfig(max_text=10)) as files:
        content = b"<p>A <b>tower</b></p><script>no</script>"
        page = FileUpload(content=io.BytesIO(content), filename="a.html", purpose="user_data")
        made = await files.add("ada", page)
        assert await files.file_text("ada", made.id) == "A tower\n"
        with pytest.raises(NotFound):
            await files.file_text("bob", made.id)
        long = FileUpload(content=io.BytesIO(b"x" * 11), filename="a.txt", purpose="user_data")
        with pytest.raises(ReadingFailure, match="more than 10 characters"):
            await files.file_text("ada", (await files.add("ada", long)).id)


async def test_they_are_served_while_they_are_open_and_no_temporary_one_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "gateway.storage.files")
    async with open_files(FilesConfig()) as files:
        assert uploaded_files() is files
        assert files.is_temporary
        assert files.folder.exists()
    assert uploaded_files() is None
    assert not files.folder.exists()
    [said] = caplog.messages
    assert "gone with it" in said


async def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"no database, and long enough to be looked at" * 50)
    with pytest.raises(ConfigurationError, match=r"resources\.files\.path: .* is not a database"):
        async with open_files(FilesConfig(path=str(tmp_path))):
            pass
