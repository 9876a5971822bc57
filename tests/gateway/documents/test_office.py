"""The text of Word documents, workbooks and presentations."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.documents.failures import InvalidFile, UnsupportedFile
from gateway.documents.text import read_text

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships"
W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
X = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
MAX = 100_000


def relations(*targets: tuple[str, str], namespace: str = OFFICE) -> str:
    return "<Relationships xmlns='http://schemas.openxmlformats.org/package/2006/relationships'>" + "".join(
        f"<Relationship Id='rId{number}' Type='{namespace}/{kind}' Target='{target}'/>"
        for number, (kind, target) in enumerate(targets, 1)
    ) + "</Relationships>"  # fmt: skip


def package(main: str, parts: Mapping[str, str], namespace: str = OFFICE) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", relations(("officeDocument", main), namespace=namespace))
        for name, part in parts.items():
            archive.writestr(name, part)
    return content.getvalue()


def word(body: str, **more: str) -> bytes:
    parts = {f"word/{name}.xml": part for name, part in more.items()}
    return package(
        "word/document.xml",
        {
            "word/document.xml": f"<w:document xmlns:w='{W}' xmlns:mc='m'><w:body>{body}</w:body></w:document>",
            **parts,
        },
    )


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def text_of(content: bytes, most: int = MAX) -> str:
    return read_text(content, "any name", most)


def test_a_word_document_is_read_as_markdown() -> None:
    cell = "<w:tc>{}</w:tc>".format
    nested = f"<w:tbl><w:tr>{cell(paragraph('in'))}{cell(paragraph('side'))}</w:tr></w:tbl>"
    rows = (
        f"<w:tr>{cell(paragraph('name') + paragraph('and more'))}{cell(paragraph('height'))}</w:tr>"
        f"<w:tr>{cell(paragraph('tower'))}{cell(nested)}</w:tr>"
    )
    box = "<w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent>{}</w:txbxContent></mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    found = text_of(
        word(
            paragraph("Towers &amp; more", "<w:pStyle w:val='Heading1'/>")
            + "<w:p><w:r><w:t>A </w:t><w:tab/><w:t>tower</w:t><w:br/><w:t>of iron</w:t><w:delText>gone</w:delText></w:r></w:p>"
            + paragraph("one", "<w:numPr/>")
            + paragraph("", "<w:numPr/>")
            + f"<w:tbl>{rows}</w:tbl>"
            + box.format(paragraph("in a box"), paragraph("twice")),
            footnotes=f"<w:footnotes xmlns:w='{W}'>{paragraph('a note')}</w:footnotes>",
        )
    )
    assert [line for line in found.split("\n") if line] == [
        "# Towers & more", "A \ttower", "of iron", "* one", "name and more | height", "tower | in | side", "in a box", "a note",
    ]  # fmt: skip


def workbook(sheets: Mapping[str, str], shared: str = "", namespace: str = OFFICE) -> bytes:
    names = "".join(
        f"<sheet name='{name}' sheetId='{n}' r:id='rId{n}'/>" for n, name in enumerate(sheets, 1)
    )
    targets = [("worksheet", f"/xl/worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)]
    parts = {
        f"xl/worksheets/sheet{n}.xml": f"<worksheet xmlns='{X}'><sheetData>{rows}</sheetData></worksheet>"
        for n, rows in enumerate(sheets.values(), 1)
    }
    return package(
        "xl/workbook.xml",
        {
            "xl/workbook.xml": f"<workbook xmlns='{X}' xmlns:r='{namespace}'><sheets>{names}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": relations(
                *targets, ("sharedStrings", "sharedStrings.xml"), namespace=namespace
            ),
            "xl/sharedStrings.xml": f"<sst xmlns='{X}'>{shared}</sst>",
            **parts,
        },
        namespace,
    )


@pytest.mark.parametrize("namespace", [OFFICE, STRICT])
def test_a_workbook_is_read_by_sheets_and_rows(namespace: str) -> None:
    shared = "<si><t>name</t></si><si><r><t>he</t></r><r><t>ight</t></r><rPh><t>no</t></rPh></si>"
    first = (
        "<row><c r='A1' t='s'><v>0</v></c><c r='C1' t='s'><v>1</v></c></row><row/>"
        "<row><c r='A2' t='inlineStr'><is><t>tow\ner</t></is></c><c r='B2' t='b'><v>1</v></c><c r='C2'><f>300+12</f><v>312</v></c></row>"
        "<row><c r='A3' t='s'><v>9</v></c><c r='B3' t='s'><v>-1</v></c><c r='C3' t='e'><v>#DIV/0!</v></c></row>"
    )
    found = text_of(workbook({"Towers": first, "Empty": ""}, shared, namespace))
    assert found.strip("\n").split("\n") == [
        "# Towers", "name |  | height", "tow er | TRUE | 312", " |  | #DIV/0!", "", "# Empty",
    ]  # fmt: skip


def test_slides_are_read_in_their_order_and_once() -> None:
    def slide(text: str) -> str:
        return f"<p:sld xmlns:p='{P}' xmlns:a='{A}'><p:sp><a:p><a:r><a:t>{text}</a:t></a:r><a:br/><a:r><a:t>more</a:t></a:r></a:p></p:sp></p:sld>"

    order = "".join(f"<p:sldId id='25{n}' r:id='rId{n}'/>" for n in (2, 1, 2, 3))
    found = text_of(
        package(
            "ppt/presentation.xml",
            {
                "ppt/presentation.xml": f"<p:presentation xmlns:p='{P}' xmlns:r='{OFFICE}'><p:sldIdLst>{order}</p:sldIdLst></p:presentation>",
                "ppt/_rels/presentation.xml.rels": relations(
                    ("slide", "slides/slide1.xml"), ("slide", "slides/slide2.xml"), ("slide", "../../missing.xml")
                ),
                "ppt/slides/slide1.xml": slide("tower"),
                "ppt/slides/slide2.xml": slide("bridge"),
            },
        )
    )  # fmt: skip
    assert found == "# Slide 1\nbridge\nmore\n\n# Slide 2\ntower\nmore"


def archive_of(name: str, content: str = "x") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, content)
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "kind", "sentence"),
    [
        (archive_of("a.txt"), UnsupportedFile, "Of archives, Word documents"),
        (package("word/missing.xml", {}), UnsupportedFile, "Of archives"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), UnsupportedFile, "old versions"),
        (word(paragraph("a tower"))[:-40], InvalidFile, "is broken"),
        (word("<w:p>"), InvalidFile, "is broken: mismatched tag"),
        (word(""), InvalidFile, "no text"),
        (word(paragraph("word " * (MAX // 5))), InvalidFile, f"more than {MAX} characters"),
    ],
)
def test_what_cannot_be_read_says_why(
    content: bytes, kind: type[InvalidFile], sentence: str
) -> None:
    with pytest.raises(InvalidFile, match=sentence) as caught:
        text_of(content)
    assert type(caught.value) is kind


WHOLE = workbook({"Towers": "<row><c t='str'><v>tower</v></c></row>"})


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.booleans())
def test_a_changed_or_cut_document_is_read_or_refused(at: int, byte: int, cut: bool) -> None:
    changed = WHOLE[:at] if cut else WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :]
    try:
        found = text_of(changed)
    except InvalidFile as refused:
        found = str(refused)
    assert 0 < len(found) <= MAX


@given(
    st.text(
        st.characters(
            codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"
        ),
        min_size=1,
    )
)
def test_text_comes_back_as_it_was_written(text: str) -> None:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert text_of(word(paragraph(f"|{escaped}|"))) == f"|{text}|"
