"""Reads the text of Office Open XML: Word documents, Excel workbooks and PowerPoint presentations.

`docs/decisions/office_readers.md` says why python-docx, openpyxl and python-pptx do not do this.
"""

from __future__ import annotations

import io
import posixpath
import struct
import zipfile
import zlib
from typing import Final
from xml.parsers import expat

from gateway.media.documents.failures import InvalidFile, UnsupportedFile
from gateway.media.documents.office_parts import Package
from gateway.media.documents.paragraphs import Paragraphs, ParagraphStyles
from gateway.media.documents.worksheets import CellFormats, SharedStrings, SheetRows

_KINDS: Final = "Of archives, Word documents (.docx), Excel workbooks (.xlsx) and presentations (.pptx) can be read."


def office_text(content: bytes, most: int) -> str:
    """The text of a document. Raises `InvalidFile`, also if the text exceeds `most` characters."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _text(Package(archive), most)
    except expat.ExpatError as error:
        raise InvalidFile(f"The Office document is broken: {error}.") from None
    except (
        zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, NotImplementedError, OSError, RuntimeError,
        ValueError,
    ):  # fmt: skip
        # zipfile raises these errors on malformed archives.
        raise InvalidFile("The Office document is broken, or is not an archive.") from None


def _text(package: Package, most: int) -> str:
    main = next(package.related("", "/officeDocument"), "")
    for folder, read in (("word", _word_text), ("xl", _excel_text), ("ppt", _slides_text)):
        if main.startswith(f"{folder}/"):
            return read(package, main, most)
    raise UnsupportedFile(f"Files of this kind cannot be read. {_KINDS}")


def _word_text(package: Package, main: str, most: int) -> str:
    """The text of headers, the document itself, notes, comments and footers, in this order."""
    styles = ParagraphStyles()
    for part in package.related(main, "/styles"):
        package.read(part, styles)
    found = Paragraphs(most, styles.prefixes)
    for part in package.related(main, "/header"):
        with found.unrepeated():
            package.read(part, found)
    package.read(main, found)
    for name in ("footnotes.xml", "endnotes.xml", "comments.xml"):
        part = posixpath.join(posixpath.dirname(main), name)
        if part in package:
            package.read(part, found)
    for part in package.related(main, "/footer"):
        with found.unrepeated():
            package.read(part, found)
    return found.text()


def _slides_text(package: Package, main: str, most: int) -> str:
    """The text of the slides, each with its speaker notes."""
    found = Paragraphs(most)
    for number, (_, slide) in enumerate(package.in_order(main, "sldId", "/slide"), 1):
        found.add(f"# Slide {number}")
        package.read(slide, found)
        for notes in package.related(slide, "/notesSlide"):
            with found.titled("Notes:"):
                package.read(notes, found)
        found.add("")
    return found.text()


def _excel_text(package: Package, main: str, most: int) -> str:
    """The text of all worksheets, including hidden ones."""
    shared = SharedStrings(most)
    for part in package.related(main, "/sharedStrings"):
        package.read(part, shared)
    formats = CellFormats()
    for part in package.related(main, "/styles"):
        package.read(part, formats)
    since_1904 = any(
        each.get("date1904") in ("1", "true", "on") for each in package.elements(main, "workbookPr")
    )
    found = SheetRows(shared.strings, formats.times, most, since_1904=since_1904)
    for title, sheet in package.in_order(main, "sheet", "/worksheet"):
        found.add(f"# {title}")
        package.read(sheet, found)
        found.add("")
    return "\n".join(found.lines)
