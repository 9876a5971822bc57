"""Office documents that are made to be expensive, or to read what is not theirs: refused, or read within limits."""

from __future__ import annotations

import asyncio
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.media.documents.failures import InvalidFile
from gateway.media.documents.office_parts import MAX_BYTES
from gateway.media.documents.reader import DocumentReader, ReadingFailure
from gateway.media.documents.text import read_text

W = "xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'"
RELATIONS = (
    "<Relationships><Relationship Id='rId1' Target='{}' "
    "Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/{}'/></Relationships>"
)
MAX = 10_000


def package(parts: dict[str, Any], main: str = "word/document.xml", **keys: Any) -> bytes:
    """An archive; a part is text, bytes, or a function that writes it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", **{"compression": zipfile.ZIP_DEFLATED, **keys}) as archive:
        archive.writestr("_rels/.rels", RELATIONS.format(main, "officeDocument"))
        for name, part in parts.items():
            if callable(part):
                with archive.open(name, "w") as stream:
                    part(stream)
            else:
                archive.writestr(name, part)
    return made.getvalue()


def word(body: str, before: str = "") -> bytes:
    document = f"{before}<w:document {W}><w:body>{body}</w:body></w:document>"
    return package({"word/document.xml": document})


def refusal(content: bytes, most: int = MAX) -> str:
    with pytest.raises(InvalidFile) as caught:
        read_text(content, "a.docx", most)
    return str(caught.value)


LAUGHS = "<!DOCTYPE d [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {chr(98 + level)} '{f'&{chr(97 + level)};' * 10}'>" for level in range(12)
) + "]>"  # fmt: skip
OUTSIDE = "<!DOCTYPE d [<!ENTITY a SYSTEM 'file://{}'>]>"


@pytest.mark.parametrize(
    "declared", [LAUGHS, OUTSIDE.format("/etc/passwd"), "<!DOCTYPE d SYSTEM 'http://127.0.0.1:9/d.dtd'>", "<!DOCTYPE d>"]
)  # fmt: skip
def test_no_entity_is_declared(declared: str) -> None:
    body = "<w:p><w:r><w:t>&a;&m;</w:t></w:r></w:p>"
    assert "declares a document type" in refusal(word(body, declared))


def test_no_file_outside_of_the_archive_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text(f"<w:document {W}><w:p><w:r><w:t>secret</w:t></w:r></w:p></w:document>")
    for target in (
        str(secret),
        f"../../../../../../..{secret}",
        f"file://{secret}",
        f"word/../..{secret}",
    ):
        assert "secret" not in refusal(package({}, target))


@pytest.mark.slow
def test_a_bomb_is_unpacked_up_to_a_limit() -> None:
    """Parts that are small in the archive, and gibibytes when they are unpacked."""

    def write(stream: Any) -> None:
        stream.write(f"<w:document {W}>".encode())
        for _ in range(MAX_BYTES // 1_048_576 + 1):
            stream.write(b" " * 1_048_576)

    bomb = package({"word/document.xml": write})
    assert len(bomb) < 1_000_000
    assert f"more than {MAX_BYTES} bytes" in refusal(bomb)


def test_a_lie_about_sizes_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that come out are counted, not those that the directory promises; of all parts together."""
    monkeypatch.setattr("gateway.media.documents.office_parts.MAX_BYTES", 100_000)
    space = f"<w:footnotes {W}>{' ' * 60_000}</w:footnotes>"
    twice = package(
        {"word/document.xml": space, "word/footnotes.xml": space, "word/endnotes.xml": space}
    )
    assert "more than 100000 bytes" in refusal(twice)
    small = word("<w:p><w:r><w:t>a tower</w:t></w:r></w:p>")
    at = small.rindex(b"PK\x01\x02")

    def lie(size: int) -> bytes:
        return small[: at + 24] + struct.pack("<I", size) + small[at + 28 :]

    assert read_text(lie(2**32 - 2), "a.docx", MAX) == "a tower"
    assert "broken" in refusal(lie(1))


def workbook(rows: str, shared: str = "") -> bytes:
    namespace = "xmlns:r='http://schemas.openxmlformats.org/officeDocument/2006/relationships'"
    kind = "Type='http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
    return package(
        {
            "xl/workbook.xml": f"<workbook {namespace}><sheet name='s' r:id='a'/></workbook>",
            "xl/_rels/workbook.xml.rels": f"<r><Relationship Id='a' {kind}worksheet' Target='s.xml'/>"
            f"<Relationship Id='b' {kind}sharedStrings' Target='t.xml'/></r>",
            "xl/s.xml": f"<worksheet>{rows}</worksheet>",
            "xl/t.xml": f"<sst>{shared}</sst>",
        },
        "xl/workbook.xml",
    )


LONG = "x" * 9_000
DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "a shared string in each of a million cells": lambda: workbook(
        "<row>" + "<c t='s'><v>0</v></c>" * 1_000_000 + "</row>", f"<si><t>{LONG}</t></si>"
    ),
    "cells that are far to the right": lambda: workbook("<row><c r='XFD1'><v>1</v></c></row>" * 1000),
    "a column past all columns": lambda: workbook("<row><c r='ZZZ1'><v>1</v></c></row>" * 3),
    "one long text": lambda: word(f"<w:p><w:r><w:t>{LONG * 1000}</w:t></w:r></w:p>"),
    "nested elements": lambda: word("<w:tbl><w:tr><w:tc>" * 100_000),
    "nested paragraphs": lambda: word("<w:p>" * 300_000),
    "closed and never opened": lambda: word("</w:body></w:document>"),
    "a part that is not XML": lambda: package({"word/document.xml": bytes(range(256)) * 100}),
    "a compression that Office has not": lambda: package(
        {"word/document.xml": f"<w:document {W}/>"}, compression=zipfile.ZIP_LZMA
    ),
    "another encoding": lambda: package(
        {"word/document.xml": b"<?xml version='1.0' encoding='utf-7'?><a>+ADw-b/+AD4-</a>"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DOCUMENTS)
def test_a_document_is_refused_with_a_sentence(what: str) -> None:
    assert refusal(DOCUMENTS[what]()).endswith(".")


def test_empty_paragraphs_are_one_line() -> None:
    text = "<w:p><w:r><w:t>x</w:t></w:r></w:p>"
    found = read_text(word(text + "<w:p/>" * 300_000 + text), "a.docx", MAX)
    assert found == "x\n\nx"


def test_a_document_with_a_password_is_refused() -> None:
    plain = word("<w:p><w:r><w:t>a tower</w:t></w:r></w:p>")
    at = plain.rindex(b"PK\x01\x02")
    encrypted = plain[: at + 8] + b"\x01" + plain[at + 9 :]
    assert "password" in refusal(encrypted)


def test_a_document_that_takes_too_long_ends_its_process_alone() -> None:
    """Hundreds of megabytes of empty elements, and a tenth of a second."""

    def write(stream: Any) -> None:
        stream.write(f"<w:document {W}>".encode())
        for _ in range(60):
            stream.write(b"<w:p/>" * 100_000)

    async def body() -> None:
        reader = DocumentReader(processes=1, seconds=0.1, memory=1 << 29, max_text=MAX)
        with pytest.raises(ReadingFailure, match=r"within 0\.1 seconds"):
            await reader.text(package({"word/document.xml": write}), "a.docx")
        assert not reader.pool.process_ids
        await reader.close()

    asyncio.run(body())


def test_a_document_is_read_in_a_process_of_its_own() -> None:
    async def body() -> None:
        reader = DocumentReader(processes=1, seconds=60, memory=1 << 29, max_text=MAX)
        sound = word("<w:p><w:r><w:t>a tower</w:t></w:r></w:p>")
        assert await reader.text(sound, "a.docx", key="ada") == "a tower"
        with pytest.raises(ReadingFailure, match="Of archives") as caught:
            await reader.text(package({}), "a.docx")
        assert caught.value.code == "unsupported_file"
        assert not reader.pool.process_ids
        await reader.close()

    asyncio.run(body())
