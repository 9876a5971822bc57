"""Files of hostile clients in requests: bounded in bytes, text, pages, memory and time, and each owner's own."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gateway.config import DocumentsConfig, MediaConfig
from gateway.media.file_parts import DocumentSource
from gateway.media.file_reader import FileReader
from gateway.media.refused import MediaRefused
from gateway.plugins.protocols import Media
from gateway.storage.files.database import FilesDatabase
from gateway.storage.files.form import FileUpload
from gateway.storage.files.uploaded import FILE_TABLES, UploadedFiles
from tests.encrypted_pdf import encrypted_pdf
from tests.pdf_files import CATALOGUE, pdf_of, stream

T = TypeVar("T")
PAGES = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"


def page(box: bytes, drawn: bytes = b"", resources: bytes = b"<< >>") -> bytes:
    """A PDF of one page."""
    leaf = b"<< /Type /Page /Parent 2 0 R /MediaBox [%s] /Contents 4 0 R /Resources %s >>"
    return pdf_of(CATALOGUE, PAGES, leaf % (box, resources), stream(drawn))


def source(data: bytes, **fields: Any) -> DocumentSource:
    return DocumentSource(data=base64.b64encode(data).decode(), **fields)


def shown(data: bytes) -> DocumentSource:
    return source(data, shows_pages=True)


def run(
    use: Callable[[FileReader], Awaitable[T]], *, names: Any = None, media: Any = None, **keys: Any
) -> T:
    async def body() -> T:
        more = {} if names is None else {"resolve": names}
        async with FileReader(
            DocumentsConfig(**keys), MediaConfig(**media or {}), **more
        ) as reader:
            return await use(reader)

    return asyncio.run(body())


def refusal(given: DocumentSource, **keys: Any) -> MediaRefused:
    async def use(reader: FileReader) -> MediaRefused:
        with pytest.raises(MediaRefused) as refused:
            await reader.read(given, "anna")
        return refused.value

    return run(use, **keys)


def tried(given: DocumentSource, **keys: Any) -> Sequence[Media]:
    """The pages of a file; none if it is refused as invalid."""
    try:
        return run(lambda reader: reader.read(given, "anna"), **keys).pages
    except MediaRefused as refused:
        if refused.code != "invalid_file":
            raise
        return ()


@pytest.mark.parametrize(
    "box",
    [b"0 0 1e30 1e30", b"0 0 14400000 1", b"0 0 1 14400000", b"0 0 0.00001 5", b"5 5 0 0", b"0 0 0 0", b"-9e9 0 9e9 3"],
)  # fmt: skip
def test_a_page_of_any_size_is_an_image_of_the_given_size(box: bytes) -> None:
    for image in tried(shown(page(box)), page_side=64):
        assert 1 <= image.width <= 64
        assert 1 <= image.height <= 64


def test_a_pattern_that_is_drawn_for_ever_is_stopped() -> None:
    """Forms that draw each other, 10 to the power of 12 times."""
    forms = [
        stream(b"/F Do " * 10, b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F %d 0 R >> >>" % (number + 1))
        for number in range(5, 17)
    ]  # fmt: skip
    last = stream(b"0 0 9 9 re f", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9]")
    leaf = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources << /XObject << /F 5 0 R >> >> >>"
    bomb = pdf_of(CATALOGUE, PAGES, leaf, stream(b"/F Do"), *forms, last)
    tried(shown(bomb), seconds=1.0)


def test_an_image_that_takes_all_memory_is_refused() -> None:
    huge = stream(b"\0", b"/Type /XObject /Subtype /Image /Width 60000 /Height 60000 /BitsPerComponent 8 /ColorSpace /DeviceRGB")  # fmt: skip
    leaf = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources << /XObject << /I 5 0 R >> >> >>"
    bomb = pdf_of(CATALOGUE, PAGES, leaf, stream(b"99 0 0 99 0 0 cm /I Do"), huge)

    async def use(reader: FileReader) -> None:
        with suppress(MediaRefused):  # or the image is left out
            await reader.read(shown(bomb), "anna")
        found = await reader.read(source(b"still here"), "anna")
        assert found.text == "still here"

    run(use, memory=256 << 20)


def test_a_process_that_dies_ends_only_its_file() -> None:
    async def use(reader: FileReader) -> None:
        assert reader._reader is not None
        pool = reader._reader.pool
        forms = page(b"0 0 9 9", b"q " * 9_000_000)  # takes long enough to be killed

        async def kill() -> None:
            while not pool.process_ids:  # noqa: ASYNC110 - the pool announces no processes
                await asyncio.sleep(0.01)
            os.kill(pool.process_ids[0], signal.SIGKILL)

        killing = asyncio.create_task(kill())
        with pytest.raises(MediaRefused, match="cannot be read"):
            await reader.read(source(forms), "anna")
        await killing
        assert (await reader.read(source(b"fine"), "anna")).text == "fine"

    run(use, processes=1)


@pytest.mark.parametrize(
    ("given", "limits", "code"),
    [
        (DocumentSource(data="A" * 4_000_000), {"max_bytes": 1_000_000}, "file_too_large"),
        (DocumentSource(data="data:text/plain;base64," + "A" * 4000), {"max_bytes": 1000}, "file_too_large"),
        (DocumentSource(data="data:" + "x" * 1_000_000), {}, "invalid_file_url"),
        (DocumentSource(data="=" * 1_000_000), {}, "invalid_base64_file"),
        (DocumentSource(data="\ud800" * 8), {}, "invalid_base64_file"),
        (DocumentSource(url="file:///etc/passwd"), {}, "invalid_file_url"),
        (DocumentSource(url="http://[", filename="a"), {}, "invalid_file_url"),
        (source(b"a\n" * 600), {"max_text": 1000}, "invalid_file"),
        (source(b"PK\x03\x04" + bytes(200)), {}, "invalid_file"),
        (source(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), {}, "unsupported_file"),
    ],
)  # fmt: skip
def test_what_is_too_large_or_none_is_refused(
    given: DocumentSource, limits: dict[str, Any], code: str
) -> None:
    media = {"allow_hosts": ["*"]} if given.url else {}
    assert refusal(given, media=media, **limits).code == code


@pytest.mark.parametrize("give", [source, shown])
def test_a_pdf_with_a_password_is_refused(give: Callable[[bytes], DocumentSource]) -> None:
    """Its text and its pages. One that anybody can open is read."""
    refused = refusal(give(encrypted_pdf(page(b"0 0 99 99"), "secret")))
    assert refused.code == "invalid_file"
    assert "password" in refused.message
    assert tried(shown(encrypted_pdf(page(b"0 0 99 99"), "")))


def test_a_private_address_is_not_connected_to() -> None:
    async def names(host: str, port: int) -> Any:
        return ["127.0.0.1"] if host == "public.example" else [host]

    for url in ("http://public.example:1/a", "http://127.0.0.1:1/a", "http://169.254.169.254/a"):
        refused = refusal(DocumentSource(url=url), names=names, media={"allow_hosts": ["*"]})
        assert refused.code == "invalid_file_url"
        assert "not fetched" in refused.message


async def serve_endless_events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for _ in range(1600):  # 100 MiB, a hundred times the limit
            writer.write(bytes(65_536))
            await writer.drain()
    writer.close()


def test_a_file_that_is_declared_as_an_event_stream_has_the_same_limit() -> None:
    async def use(reader: FileReader) -> MediaRefused:
        async with await asyncio.start_server(serve_endless_events, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(MediaRefused) as refused:
                await reader.read(DocumentSource(url=f"http://127.0.0.1:{port}/a.txt"), "anna")
            return refused.value

    media = {"allow_hosts": ["*"], "allow_private": True, "fetch_seconds": 60.0}
    assert run(use, media=media, max_bytes=1 << 20).code == "file_too_large"


def test_a_file_of_another_owner_does_not_exist(tmp_path: Path) -> None:
    async def use(reader: FileReader) -> None:
        class Limits:
            max_file_bytes = max_total_bytes = 1 << 20
            max_files = 10

        database = FilesDatabase(tmp_path / "f", (FILE_TABLES,), name="Files", setting="path")
        with closing(database):
            files = UploadedFiles(database, Limits())
            upload = FileUpload(content=io.BytesIO(b"secret"), filename="s.txt", purpose="user_data", seconds=None)  # fmt: skip
            file = await files.add("anna", upload)
            with files.serving():
                own = await reader.read(DocumentSource(file_id=file.id), "anna")
                assert (own.filename, own.text) == ("s.txt", "secret")
                for owner in ("bert", ""):
                    with pytest.raises(MediaRefused) as refused:
                        await reader.read(DocumentSource(file_id=file.id), owner)
                    assert refused.value.code == "file_not_found"

    run(use)


def test_a_file_is_read_once_for_each_owner() -> None:
    async def use(reader: FileReader) -> None:
        assert reader._reader is not None
        calls: list[str] = []
        read = reader._reader.pool.run

        async def counted(*arguments: Any, **keys: Any) -> Any:
            calls.append(keys["key"])
            return await read(*arguments, **keys)

        reader._reader.pool.run = counted  # type: ignore[assignment]
        for owner in ("anna", "anna", "bert"):
            found = await reader.read(source(b"<p>text", filename=f"{owner}.html"), owner)
            assert (found.filename, found.text) == (f"{owner}.html", "text")
        assert calls == ["anna", "bert"]

    run(use)
