"""Reading images and sounds with real helper processes."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image

from gateway.base.errors import NotFound, PayloadTooLarge
from gateway.config import MediaConfig
from gateway.media.reader import MediaReader
from gateway.media.refused import MediaRefused
from gateway.plugins.protocols import Media, MediaSource
from gateway.storage.files.database import FilesDatabase
from gateway.storage.files.form import FileUpload
from gateway.storage.files.uploaded import FILE_TABLES, UploadedFiles

T = TypeVar("T")


def png(width: int, height: int, colour: str = "red") -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(written, "PNG")
    return written.getvalue()


def image(data: bytes, detail: str = "auto") -> MediaSource:
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return MediaSource(kind="image", url=url, detail=detail)


def run(
    use: Callable[[MediaReader], Awaitable[T]], *, files: Library | None = None, **keys: Any
) -> T:
    async def body() -> T:
        with nullcontext() if files is None else files.serving():
            async with MediaReader(MediaConfig(**keys)) as reader:
                return await use(reader)

    return asyncio.run(body())


def code_of(source: MediaSource, **keys: Any) -> str:
    async def use(reader: MediaReader) -> str:
        with pytest.raises(MediaRefused) as refused:
            await reader.read(source, "anna")
        return refused.value.code

    return run(use, **keys)


def test_an_image_is_encoded_anew_at_the_size_of_its_detail() -> None:
    async def use(reader: MediaReader) -> None:
        source = png(1000, 500)
        sizes = {}
        for detail in ("low", "auto", "high", "original", ""):
            found = await reader.read(image(source, detail), "anna")
            assert found.data != source
            assert found.sha256 == sha256(found.data).hexdigest()
            assert (found.kind, found.media_type) == ("image", "image/png")
            assert Image.open(io.BytesIO(found.data)).size == (found.width, found.height)
            sizes[detail] = (found.width, found.height)
        assert sizes == {
            "low": (512, 256),
            "auto": (600, 300),
            "": (600, 300),
            "high": (800, 400),
            "original": (800, 400),
        }

    run(use, max_side=600, max_side_high=800)


def test_an_image_is_decoded_once_for_each_owner_and_size() -> None:
    async def use(reader: MediaReader) -> None:
        source = image(png(40, 30))
        first = await reader.read(source, "anna")
        concurrent = await asyncio.gather(*(reader.read(source, "anna") for _ in range(20)))
        assert all(found is first for found in concurrent)
        again = await reader.read(image(png(40, 30), "high"), "anna")
        other = await reader.read(source, "bert")
        assert other is not first
        assert again is not first
        assert other == first == again, "the same bytes give the same hash"

    run(use)


def test_a_sound_is_read() -> None:
    import wave

    written = io.BytesIO()
    with wave.open(written, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(bytes(8000))
    data = base64.b64encode(written.getvalue()).decode()

    async def use(reader: MediaReader) -> Media:
        return await reader.read(MediaSource(kind="audio", data=data, detail="wav"), "anna")

    found = run(use)
    assert (found.kind, found.media_type, found.seconds) == ("audio", "audio/wav", 0.5)


@pytest.mark.parametrize("said", ["mp3", "wav"])
def test_an_mp3_is_read_whatever_the_request_calls_it(said: str) -> None:
    pytest.importorskip("miniaudio", reason="miniaudio has no wheel for this machine")
    data = base64.b64encode(
        (Path(__file__).parents[2] / "data/sounds/tone.mp3").read_bytes()
    ).decode()

    async def use(reader: MediaReader) -> Media:
        return await reader.read(MediaSource(kind="audio", data=data, detail=said), "anna")

    found = run(use)
    assert (found.kind, found.media_type) == ("audio", "audio/wav")
    assert 0.5 <= found.seconds < 0.6
    assert found.data.startswith(b"RIFF")


def test_what_is_no_sound_is_refused() -> None:
    assert code_of(MediaSource(kind="audio", data="AAAA", detail="mp3")) == "invalid_value"


class Library(UploadedFiles):
    """Stands for the files that owners have uploaded."""

    def __init__(self) -> None:
        pass

    async def read(self, owner: str, file_id: str, *, max_bytes: int) -> bytes:
        if (owner, file_id) == ("anna", "file-large"):
            raise PayloadTooLarge(f"more than {max_bytes}")
        if (owner, file_id) == ("anna", "file-lies"):
            return bytes(max_bytes + 1)
        if (owner, file_id) == ("anna", "file-empty"):
            return b""
        if (owner, file_id) != ("anna", "file-1"):
            raise NotFound("There is no such file.")
        return png(30, 20)


def test_files_of_the_owner_are_read() -> None:
    source = MediaSource(kind="image", file_id="file-1", detail="auto")
    found = run(lambda reader: reader.read(source, "anna"), files=Library())
    assert (found.width, found.height) == (30, 20)


@pytest.mark.parametrize(
    ("owner", "file_id", "code"),
    [
        ("bert", "file-1", "image_file_not_found"),
        ("anna", "file-2", "image_file_not_found"),
        ("anna", "file-large", "image_file_too_large"),
        ("anna", "file-lies", "image_file_too_large"),
        ("anna", "file-empty", "empty_image_file"),
    ],
)
def test_other_files_are_refused(owner: str, file_id: str, code: str) -> None:
    async def use(reader: MediaReader) -> str:
        with pytest.raises(MediaRefused) as refused:
            await reader.read(MediaSource(kind="image", file_id=file_id), owner)
        return refused.value.code

    assert run(use, files=Library()) == code


class Limits:
    max_file_bytes = max_total_bytes = 1_000_000
    max_files = 10


def test_files_that_the_gateway_serves_are_read(tmp_path: Path) -> None:
    async def use(reader: MediaReader) -> None:
        upload = FileUpload(content=io.BytesIO(png(30, 20)), filename="a.png", purpose="vision")
        database = FilesDatabase(
            tmp_path / "a.sqlite3", (FILE_TABLES,), name="The files", setting="path"
        )
        files = UploadedFiles(database, Limits())
        with closing(database), files.serving():
            file = await files.add("anna", upload)
            source = MediaSource(kind="image", file_id=file.id)
            assert (await reader.read(source, "anna")).width == 30
            with pytest.raises(MediaRefused, match="no file with this id"):
                await reader.read(source, "bert")
            reader.config = MediaConfig(max_bytes=10)
            with pytest.raises(MediaRefused, match="larger than 10 bytes"):
                await reader.read(source, "anna")

    run(use)


def test_without_files_ids_cannot_be_resolved() -> None:
    assert code_of(MediaSource(kind="image", file_id="file-1")) == "image_file_not_found"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (MediaSource(kind="image"), "invalid_image_url"),
        (MediaSource(kind="image", url="https://example.com/a.png"), "invalid_image_url"),
        (MediaSource(kind="image", url="data:image/png;base64,"), "empty_image_file"),
        (image(b"text"), "invalid_image_format"),
        (image(png(50, 50)[:100]), "image_parse_error"),
        (image(png(50, 50) + bytes(2000)), "image_file_too_large"),
        (image(png(101, 100)), "image_too_large"),
    ],
)
def test_refusals_have_openais_codes(source: MediaSource, code: str) -> None:
    assert code_of(source, max_bytes=1000, max_pixels=10_000) == code


def test_processes_are_started_when_they_are_needed_and_ended() -> None:
    async def use(reader: MediaReader) -> None:
        assert not reader._pool.process_ids
        await reader.read(image(png(20, 20)), "anna")
        assert len(reader._pool.process_ids) == 1
        await reader.close()
        assert not reader._pool.process_ids

    run(use)
