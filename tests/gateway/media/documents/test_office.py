"""The text of Word documents, workbooks and presentations."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media.documents.failures import InvalidFile, UnsupportedFile
from gateway.media.documents.text import read_text

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


def word(body: str, *kinds: tuple[str, str], **more: str) -> bytes:
    """A document with more parts, by name. `kinds` are the kinds and files of its relations."""
    parts = {f"word/{name}.xml": part for name, part in more.items()}
    return package(
        "word/document.xml",
        {
            "word/_rels/document.xml.rels": relations(*kinds),
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


def test_headers_notes_comments_and_footers_are_read_once_each() -> None:
    def part(name: str, *paragraphs: str) -> str:
        return f"<w:{name} xmlns:w='{W}'>{''.join(map(paragraph, paragraphs))}</w:{name}>"

    comments = (
        f"<w:comment w:author='Ada  L.'>{paragraph('why?')}{paragraph('really')}</w:comment>"
        f"<w:comment>{paragraph('because')}</w:comment>"
    )
    found = text_of(
        word(
            paragraph("a tower"),
            ("header", "h1.xml"),
            ("header", "h2.xml"),
            ("footer", "f.xml"),
            h1=part("hdr", "Towers Ltd", "secret"),
            h2=part("hdr", "Towers Ltd"),
            f=part("ftr", "Paris", "secret"),
            footnotes=part("footnotes", "a note"),
            comments=f"<w:comments xmlns:w='{W}'>{comments}</w:comments>",
        )
    )
    assert found.split("\n") == [
        "Towers Ltd", "secret", "a tower", "a note", "[Comment by Ada L.] why?", "really", "[Comment] because", "Paris",
    ]  # fmt: skip


def test_headings_and_lists_are_known_by_the_names_of_their_styles() -> None:
    """The ids are in the language of Word."""
    styles = (
        "<w:style w:styleId='berschrift2'><w:name w:val='heading 2'/><w:pPr><w:numPr/></w:pPr></w:style>"
        "<w:style w:styleId='Aufzhlungszeichen'><w:name w:val='List Bullet'/><w:pPr><w:numPr/></w:pPr></w:style>"
    )
    found = text_of(
        word(
            paragraph("Towers", "<w:pStyle w:val='berschrift2'/><w:numPr/>")
            + paragraph("iron", "<w:pStyle w:val='Aufzhlungszeichen'/><w:numPr/>")
            + paragraph("text", "<w:pStyle w:val='Standard'/>"),
            ("styles", "styles.xml"),
            styles=f"<w:styles xmlns:w='{W}'>{styles}</w:styles>",
        )
    )
    assert found == "## Towers\n* iron\ntext"


def test_text_in_changes_controls_fields_and_formulas_is_read() -> None:
    """What python-docx leaves out: see `docs/decisions/office_readers.md`."""

    def run(text: str) -> str:
        return f"<w:r><w:t>{text}</w:t></w:r>"

    body = (
        f"<w:p><w:ins>{run('inserted ')}</w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>"
        f"<w:fldSimple>{run('field ')}</w:fldSimple><w:smartTag>{run('tag ')}</w:smartTag>"
        f"<w:sdt><w:sdtContent>{run('control ')}</w:sdtContent></w:sdt><w:hyperlink>{run('link ')}</w:hyperlink>"
        "<m:oMath xmlns:m='m'><m:r><m:t>a=b</m:t></m:r></m:oMath></w:p>"
        f"<w:sdt><w:sdtContent><w:p>{run('a')}<w:r><w:noBreakHyphen/></w:r>{run('block')}</w:p></w:sdtContent></w:sdt>"
    )
    assert text_of(word(body)) == "inserted field tag control link a=b\na-block"


def workbook(
    sheets: Mapping[str, str],
    shared: str = "",
    namespace: str = OFFICE,
    *,
    styles: str = "",
    properties: str = "",
) -> bytes:
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
            "xl/workbook.xml": f"<workbook xmlns='{X}' xmlns:r='{namespace}'>{properties}<sheets>{names}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": relations(
                *targets,
                ("sharedStrings", "sharedStrings.xml"),
                ("styles", "styles.xml"),
                namespace=namespace,
            ),
            "xl/styles.xml": f"<styleSheet xmlns='{X}'>{styles}</styleSheet>",
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


@pytest.mark.parametrize(
    ("code", "value", "text"),
    [
        ("General", "45429", "45429"),
        ("yyyy\\-mm\\-dd", "45429", "2024-05-17"),
        ("dd.mm.yyyy hh:mm", "45429.75", "2024-05-17 18:00:00"),
        ("[$-407]d/ mmm", "1", "1900-01-01"),
        ("yyyy", "61", "1900-03-01"),
        ("h:mm AM/PM", "0.5", "12:00:00"),
        ("[h]:mm", "1.25", "30:00:00"),
        ("mm:ss.0", "0.9999999", "1900-01-01"),
        ("0.00 &quot;days&quot;", "45429", "45429"),
        ("[Red]0_d;yyyy", "45429", "45429"),
        ("yyyy", "-1", "-1"),
        ("yyyy", "1e300", "1e300"),
        ("yyyy", "nan", "nan"),
        ("yyyy", "soon", "soon"),
    ],
)
def test_numbers_in_formats_of_dates_are_dates(code: str, value: str, text: str) -> None:
    styles = (
        f"<numFmts><numFmt numFmtId='164' formatCode='{code}'/></numFmts>"
        "<cellStyleXfs><xf numFmtId='14'/></cellStyleXfs><cellXfs><xf numFmtId='0'/><xf numFmtId='164'/></cellXfs>"
    )
    rows = f"<row><c s='0'><v>45429</v></c><c s='1' r='B1'><v>{value}</v></c><c s='9' r='C1'><v>7</v></c></row>"
    found = text_of(workbook({"Days": rows}, styles=styles))
    assert found.split("\n")[1] == f"45429 | {text} | 7"


def test_days_can_be_counted_from_1904() -> None:
    styles = "<cellXfs><xf numFmtId='14'/></cellXfs>"
    rows = "<row><c s='0'><v>0.5</v></c><c s='0' r='B1'><v>43967</v></c></row>"
    found = text_of(
        workbook({"Days": rows}, styles=styles, properties="<workbookPr date1904='1'/>")
    )
    assert found.split("\n")[1] == "12:00:00 | 2024-05-17"


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
                "ppt/slides/_rels/slide2.xml.rels": relations(("notesSlide", "../notesSlides/notes1.xml")),
                "ppt/notesSlides/notes1.xml": slide(
                    "say this</a:t></a:r><a:fld type='slidenum'><a:r><a:t>1</a:t></a:r></a:fld><a:r><a:t>"
                ),
                "ppt/slides/_rels/slide1.xml.rels": relations(("notesSlide", "../notesSlides/notes2.xml")),
                "ppt/notesSlides/notes2.xml": f"<p:notes xmlns:p='{P}' xmlns:a='{A}'><a:p/></p:notes>",
            },
        )
    )  # fmt: skip
    assert found == "# Slide 1\nbridge\nmore\nNotes:\nsay this\nmore\n\n# Slide 2\ntower\nmore"


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
