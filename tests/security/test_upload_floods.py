"""Uploads in parts are their owner's alone, and cannot hold more than the owner's files may."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.base.errors import GatewayError, InvalidRequest, NotFound
from gateway.storage.files.form import FileUpload
from gateway_files import uploads
from gateway_files.config import FilesConfig
from gateway_files.files import Files, open_files
from gateway_files.uploads import CompleteUpload, CreateUpload

pytestmark = pytest.mark.anyio


@pytest.fixture
async def files() -> AsyncIterator[Files]:
    async with open_files(FilesConfig(max_total_bytes=100, max_files=3)) as opened:
        yield opened


async def begin(files: Files, size: int, owner: str = "ada") -> str:
    asked = CreateUpload(bytes=size, filename="a.txt", mime_type="x/y", purpose="vision")
    return (await files.uploads.create(owner, asked)).id


async def add(files: Files, upload: str, size: int, owner: str = "ada") -> str:
    return (await files.uploads.add(owner, upload, io.BytesIO(b"x" * size))).id


async def rows(files: Files, table: str) -> int:
    def count(connection: Any) -> int:
        found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        return found

    return await files.database.read(count)


async def test_nobody_else_reaches_an_upload(files: Files) -> None:
    mine = await begin(files, 3)
    part = await add(files, mine, 3)
    for use in (
        files.uploads.room("bob", mine),
        files.uploads.add("bob", mine, io.BytesIO(b"x")),
        files.uploads.complete("bob", mine, CompleteUpload(part_ids=[part])),
        files.uploads.complete("bob", mine, CompleteUpload(part_ids=[part], md5="x")),
        files.uploads.cancel("bob", mine),
    ):
        with pytest.raises(NotFound):
            await use
    theirs = await begin(files, 3, "bob")
    with pytest.raises(InvalidRequest, match="has no part"):
        await files.uploads.complete("bob", theirs, CompleteUpload(part_ids=[part]))


async def test_what_is_announced_counts_as_files_do(files: Files) -> None:
    first = await begin(files, 60)
    small = FileUpload(content=io.BytesIO(b"x" * 41), filename="a", purpose="vision")
    with pytest.raises(InvalidRequest, match="limit of 100 bytes"):
        await files.add("ada", small)
    with pytest.raises(InvalidRequest, match="limit of 100 bytes"):
        await begin(files, 41)
    await files.add("bob", small)
    await begin(files, 0)
    await begin(files, 0)
    for full in (begin(files, 0), files.check_room("ada")):
        with pytest.raises(InvalidRequest, match="You have 3 files"):
            await full
    part = await add(files, first, 60)
    made = await files.uploads.complete("ada", first, CompleteUpload(part_ids=[part]))
    assert made.file is not None, "its own place is there, though all are taken"


async def test_parts_that_are_sent_again_need_room_too(files: Files) -> None:
    upload = await begin(files, 60)
    await add(files, upload, 60)
    await add(files, upload, 40)
    with pytest.raises(InvalidRequest, match="limit of 100 bytes"):
        await add(files, upload, 1)
    await files.uploads.cancel("ada", upload)
    small = await begin(files, 10)
    await add(files, small, 10)
    await add(files, small, 10)
    for more in (add(files, small, 1), files.uploads.room("ada", small)):
        with pytest.raises(InvalidRequest, match="too much for it"):
            await more


async def test_floods_of_small_parts_and_of_ended_uploads_are_bounded(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_PARTS", 3)
    monkeypatch.setattr(uploads, "_ENDED_KEPT", 2)
    upload = await begin(files, 50)
    for _ in range(3):
        await add(files, upload, 1)
    for more in (add(files, upload, 1), files.uploads.room("ada", upload)):
        with pytest.raises(InvalidRequest, match="Send larger parts"):
            await more
    await files.uploads.cancel("ada", upload)
    assert await rows(files, "upload_contents") == 0
    for _ in range(9):
        await files.uploads.cancel("ada", await begin(files, 9))
    assert await rows(files, "uploads") <= 4


async def test_requests_at_the_same_time_make_one_file(files: Files) -> None:
    upload = await begin(files, 30)
    adding = [add(files, upload, 30) for _ in range(5)]
    added = await asyncio.gather(*adding, return_exceptions=True)
    ids = [each for each in added if isinstance(each, str)]
    assert len(ids) == 2, "all of it, twice"
    ending = [
        files.uploads.complete("ada", upload, CompleteUpload(part_ids=[each])) for each in ids
    ]
    made = await asyncio.gather(*ending, files.uploads.cancel("ada", upload), return_exceptions=True)  # fmt: skip
    assert all(isinstance(each, (uploads.Upload, GatewayError)) for each in made)
    assert await rows(files, "files") <= 1
    assert await rows(files, "upload_contents") == 0


async def test_an_expired_upload_is_gone_with_its_parts(files: Files) -> None:
    upload = await begin(files, 100)
    await add(files, upload, 50)
    await files.database.write(lambda c: c.execute("UPDATE uploads SET expires_at = 1"))
    with pytest.raises(NotFound, match="an hour"):
        await files.uploads.cancel("ada", upload)
    await files.uploads.remove_expired()
    assert await rows(files, "upload_parts") == await rows(files, "upload_contents") == 0
    await begin(files, 100)
