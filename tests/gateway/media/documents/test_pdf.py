"""The text and the pages of PDFs: whole ones, and those that other readers open though they are damaged."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media.documents.failures import InvalidFile
from gateway.media.documents.text import read_text
from gateway.media.pages import read_document
from tests.encrypted_pdf import encrypted_pdf
from tests.pdf_files import text_pdf

MAX = 100_000
TOWER = text_pdf("A tower of iron", "is 312 metres high")
TEXT = "A tower of iron\n\nis 312 metres high"
BODY = TOWER[: TOWER.index(b"xref\n")]
TABLE = re.compile(rb"(\d+) 0 obj\n(.*?)\nendobj\n", re.DOTALL)


def table_in_a_stream(*, shift: int = 0, broken: bool = False, packed: bool = False) -> bytes:
    """The same document with a cross-reference stream; `packed`: and with most objects in an object stream."""
    out = io.BytesIO(b"%PDF-1.5\n")
    out.seek(0, io.SEEK_END)
    entries = [(0, 0, 65535)] * 9
    head, data, count = b"", b"", 0
    for number, content in TABLE.findall(BODY):
        if packed and b"stream" not in content:
            head += b"%s %d " % (number, len(data))
            entries[int(number)] = (2, 7, count)
            data += content + b" "
            count += 1
        else:
            entries[int(number)] = (1, out.tell(), 0)
            out.write(b"%s 0 obj\n%s\nendobj\n" % (number, content))
    if packed:
        entries[7] = (1, out.tell(), 0)
        stream = zlib.compress(head + data)
        out.write(
            b"7 0 obj\n<< /Type /ObjStm /N %d /First %d /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream\nendobj\n"
            % (count, len(head), len(stream), stream)
        )
    start = out.tell()
    entries[8] = (1, start, 0)
    table = zlib.compress(b"".join(bytes([kind]) + place.to_bytes(4, "big") + last.to_bytes(2, "big") for kind, place, last in entries))  # fmt: skip
    if broken:
        table = b"\xff" * len(table)
    out.write(
        b"8 0 obj\n<< /Type /XRef /Size 9 /W [1 4 2] /Root 1 0 R /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream\nendobj\n"
        b"startxref\n%d\n%%%%EOF" % (len(table), table, start + shift)
    )
    return out.getvalue()


def updated() -> bytes:
    """The same document, whose second page was something else before."""
    before = text_pdf("A tower of iron", "was 300 metres high")
    content = next(content for number, content in TABLE.findall(BODY) if number == b"5")
    place = len(before) + 1
    body = before + b"\n5 0 obj\n%s\nendobj\n" % content
    return body + b"xref\n5 1\n%010d 00000 n \ntrailer\n<< /Size 7 /Root 1 0 R /Prev %d >>\nstartxref\n%d\n%%%%EOF" % (
        place, before.index(b"xref\n"), len(body)
    )  # fmt: skip


ODD: dict[str, bytes] = {
    "whole": TOWER,
    "no table": BODY + b"trailer << /Root 1 0 R >>",
    "no table and no trailer": BODY,
    "no table, after other bytes": b"\x00junk\r\n" * 50 + BODY + b"trailer << /Root 1 0 R >>",
    "a stream as table": table_in_a_stream(),
    "a broken stream as table": table_in_a_stream(broken=True),
    "a stream as table, not where it should be": table_in_a_stream(shift=7),
    "object streams": table_in_a_stream(packed=True),
    "object streams and a broken table": table_in_a_stream(packed=True, broken=True),
    "a table that is elsewhere": TOWER.replace(b"startxref\n", b"startxref\n9"),
    "a table at 0": re.sub(rb"startxref\n\d+", b"startxref\n0", TOWER),
    "objects that are elsewhere": TOWER.replace(b"%PDF-1.7\n", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"),
    "wrong lengths": re.sub(rb"/Length \d+", b"/Length 7", TOWER),
    "after other bytes": b"\x00junk\r\n" * 50 + TOWER,
    "before other bytes": TOWER + b"\n" * 3000 + b"junk",
    "no end": TOWER[:-8],
    "carriage returns": TOWER.replace(b"\n", b"\r"),
    "carriage returns and line feeds": TOWER.replace(b"\n", b"\r\n"),
    "changed": updated(),
    "a wrong number of pages": TOWER.replace(b"/Count 2", b"/Count -5"),
    "no number of pages": TOWER.replace(b"/Count 2", b""),
    "encrypted for anybody": encrypted_pdf(TOWER, ""),
}


@pytest.mark.parametrize("what", ODD)
def test_what_other_readers_open_is_read(what: str) -> None:
    assert read_text(ODD[what], "a", MAX) == TEXT
    text, pages = read_document(ODD[what], "a", MAX, 9, 9, 32)
    assert text == TEXT
    assert len(pages) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TOWER[: len(TOWER) // 2], "The PDF is broken: .* cut off"),
        (b"%PDF-1.7\n", "The PDF is broken"),
        (b"%PDF-1.7\n1 0 obj\n<< >>\nendobj", "The PDF is broken"),
        (TOWER.replace(b"/Kids [4 0 R 6 0 R] /Count 2", b"/Kids [] /Count 0"), "The PDF is broken"),
        (re.sub(rb"(?m)^[46] 0 obj", b"9 0 obj", BODY) + b"trailer << /Root 1 0 R >>", "The PDF is broken"),
        (encrypted_pdf(TOWER, "secret"), "protected by a password"),
        (re.sub(rb"/Filter /Standard", b"/Filter /Other", encrypted_pdf(TOWER, "")), "The PDF is encrypted"),
        (text_pdf(*"abcdefghij"), "The PDF has 10 pages. This server's limit is 9."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_and_says_why(content: bytes, message: str) -> None:
    with pytest.raises(InvalidFile, match=message):
        read_text(content, "a", MAX, max_pages=9)
    with pytest.raises(InvalidFile, match=message):
        read_document(content, "a", MAX, 9, 9, 32)


def test_pages_that_are_missing_are_named() -> None:
    whole = text_pdf("one", "two", "three", "four", "five")
    body = whole[: whole.index(b"xref\n")] + b"trailer << /Root 1 0 R >>"
    for number in (4, 8, 10):  # pages 1, 3 and 4
        body = body.replace(b"\n%d 0 obj" % number, b"\n99 0 obj")
    text, pages = read_document(body, "a", MAX, 9, 9, 32)
    assert text == (
        "[Page 1 of the PDF cannot be read.]\n\ntwo\n\n[Pages 3 to 4 of the PDF cannot be read.]\n\nfive"
    )
    assert len(pages) == 2
    empty = body.replace(b"(two)", b"()   ").replace(b"(five)", b"()    ")
    with pytest.raises(InvalidFile, match="no text"):
        read_text(empty, "a", MAX)
    assert read_document(empty, "a", MAX, 9, 9, 32)[0].startswith("[Page 1 of")


def drawn(operators: str, characters: str = "") -> bytes:
    """A page; `characters` are those of the codes from A on."""
    made = text_pdf("x").replace(b"BT /F1 12 Tf 72 720 Td (x) Tj ET", operators.encode())
    if characters:
        ranges = "".join(f"<{code:02x}> <{character.encode('utf-16-be').hex()}>" for code, character in enumerate(characters, 65))  # fmt: skip
        table = f"begincmap 1 begincodespacerange <00> <ff> endcodespacerange {len(characters)} beginbfchar {ranges} endbfchar endcmap"
        made = made.replace(b"/Helvetica >>", b"/Helvetica /ToUnicode 9 0 R >>")
        made = made[: made.index(b"xref\n")] + b"9 0 obj\n<< /Length %d >>\nstream\n%s\nendstream\nendobj\n" % (
            len(table), table.encode()
        )  # fmt: skip
    else:
        made = made[: made.index(b"xref\n")]
    return made + b"trailer << /Root 1 0 R >>"


def test_indents_are_kept() -> None:
    lines = ["def f\\(x\\):", "    if x:", "        return  1", " y"]
    shown = drawn(
        f"BT /F1 12 Tf 14 TL 72 720 Td {''.join(f'({line}) Tj T* ' for line in lines)} ET"
    )
    assert read_text(shown, "a", MAX) == "def f(x):\n    if x:\n        return 1\n y"


def test_hyphens_at_the_ends_of_lines_are_kept() -> None:
    shown = drawn(
        "BT /F1 12 Tf 14 TL 72 720 Td (a self-) Tj T* (hosted model) Tj T* (ends -) Tj ET"
    )
    assert read_text(shown, "a", MAX) == "a self-\nhosted model\nends -"


HEBREW = "שלום"


@pytest.mark.parametrize(
    "operators",
    [
        "[(DCBA)] TJ",  # as the eye sees them, from left to right
        "/Span << /ActualText <FEFF05DD> >> BDC (D) Tj EMC /Span << /ActualText <FEFF05D5> >> BDC (C) Tj EMC "
        "/Span << /ActualText <FEFF05DC> >> BDC (B) Tj EMC /Span << /ActualText <FEFF05E9> >> BDC (A) Tj EMC",
    ],
)  # fmt: skip
def test_words_from_right_to_left_are_read_in_that_order(operators: str) -> None:
    shown = drawn(f"BT /F1 12 Tf 72 720 Td {operators} ET", HEBREW)
    assert read_text(shown, "a", MAX) == HEBREW


def test_ligatures_are_letters() -> None:
    shown = drawn("BT /F1 12 Tf 72 720 Td (oAce) Tj ET", "ﬃ")
    assert "ffi" in read_text(shown, "a", MAX)


def test_characters_beyond_the_basic_plane_move_nothing() -> None:
    shown = drawn("BT /F1 12 Tf 14 TL 72 720 Td (AAA) Tj T* (    BC) Tj ET", "🗼in")
    assert read_text(shown, "a", MAX) == "🗼🗼🗼\n    in"


def damaged(choose: Callable[[st.SearchStrategy[int]], int]) -> bytes:
    content = bytearray((TOWER, table_in_a_stream(packed=True))[choose(st.integers(0, 1))])
    for _ in range(choose(st.integers(0, 8))):
        content[choose(st.integers(9, len(content) - 1))] = choose(st.integers(0, 255))
    return bytes(content[: choose(st.integers(9, len(content)))])


@given(st.data())
def test_damage_is_read_or_refused(data: st.DataObject) -> None:
    try:
        text, pages = read_document(damaged(data.draw), "a", MAX, 9, 9, 32)
    except InvalidFile:
        return
    assert len(text) <= MAX
    assert len(pages) <= 9
