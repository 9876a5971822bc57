"""Extracts the text of a document of any supported type.

`reader` runs this in a helper process, because a file may make its reader hang or use all memory.
"""

from __future__ import annotations

import codecs
from typing import Final

from gateway.media.documents.failures import InvalidFile, UnsupportedFile, too_long
from gateway.media.documents.html import html_text
from gateway.media.documents.office import office_text
from gateway.media.documents.pdf import is_pdf, pdf_text

_HTML: Final = (".html", ".htm", ".xhtml")
_ARCHIVE: Final = b"PK\x03\x04"
_COMPOUND: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""First bytes of the files of old Office versions, and of encrypted Office files."""
_SAMPLE: Final = 8192
_REPLACED: Final = "\ufffd"
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def read_text(
    content: bytes,
    filename: str,
    most: int,
    *,
    max_pages: int | None = None,
    may_be_empty: bool = False,
) -> str:
    """The text of a file. Raises `InvalidFile`, also if the text exceeds `most` characters, if a PDF has more than
    `max_pages` pages, or if there is no text and `may_be_empty` is not set."""
    if not content:
        raise InvalidFile("The file is empty.")
    if is_pdf(content):
        text = pdf_text(content, most, max_pages, may_be_empty=may_be_empty)
    elif content.startswith(_ARCHIVE):
        text = office_text(content, most)
    elif content.startswith(_COMPOUND):
        raise UnsupportedFile(
            "Office documents of old versions (.doc, .xls, .ppt), or with a password, cannot be read. Save the document as "
            ".docx, .xlsx or .pptx, without a password."
        )
    elif filename.lower().endswith(_HTML):
        text = html_text(content)
    else:
        text = plain_text(content)
    # UTF-16 and PDF texts may contain lone surrogates.
    text = text.encode("utf-8", "replace").decode()
    text = text.replace("\x00", "").replace("\r\n", "\n")
    if not text.strip() and not may_be_empty:
        raise InvalidFile("The file has no text.")
    if len(text) > most:
        raise too_long(most)
    return text


def is_plain(content: bytes, filename: str) -> bool:
    """Whether `read_text` would only decode the file as text."""
    return not (
        is_pdf(content)
        or content.startswith((_ARCHIVE, _COMPOUND))
        or filename.lower().endswith(_HTML)
    )


def plain_text(content: bytes) -> str:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    if b"\x00" in content[:_SAMPLE]:
        raise UnsupportedFile(
            "Files of this kind cannot be read. Text, Markdown, HTML, PDF, Word, Excel and PowerPoint documents, JSON, CSV "
            "and source code can."
        )
    text = content.decode("utf-8", "replace")
    if text.count(_REPLACED) * 10 > len(text):
        raise UnsupportedFile(
            "The file is not text in UTF-8 or UTF-16. Convert it and upload it again."
        )
    return text
