"""Reads the text of PDF documents with pdfium, which also repairs files whose cross-reference table is broken."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from math import isfinite
from typing import Any, Final

from gateway.media.documents.failures import InvalidFile

_BROKEN: Final = "The PDF is broken: no page in it can be read. It may be cut off."
_HYPHEN: Final = "\ufffe"
"""The character that pdfium returns in place of a hyphen and the line break after it."""
_MENDED: Final = re.compile(
    "\ufffe|^ (?=\\S)|[\u0590-\u065f\u066a-\u06ef\u06fa-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]{2,}",
    re.MULTILINE,
)
"""Text that `_PageText` corrects: hyphens, a space at the start of a line, and words in Hebrew, Arabic and other
scripts without digits."""
_OBJECTS: Final = re.compile(rb"\b(?P<object>\d{1,7} \d{1,5}) obj\b|/Type\s{0,3}/Catalog\b")
"""Headers of objects, and the types of catalogs."""
_MAX_INDENT: Final = 200


def is_pdf(content: bytes) -> bool:
    return b"%PDF-" in content[:1024]


@contextmanager
def opened_pdf(content: bytes) -> Iterator[Any]:
    """Open a document: a `pypdfium2.PdfDocument` with at least one page. Raises `InvalidFile`."""
    import pypdfium2  # type: ignore[import-untyped]
    import pypdfium2.raw as pdfium  # type: ignore[import-untyped]

    try:
        try:
            document = pypdfium2.PdfDocument(content)
        except pypdfium2.PdfiumError as error:
            locked = error.err_code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY)
            if locked or not (trailer := _trailer(content)):
                raise
            document = pypdfium2.PdfDocument(content + trailer)
    except pypdfium2.PdfiumError as error:
        match error.err_code:
            case pdfium.FPDF_ERR_PASSWORD:
                reason = "The PDF is protected by a password."
            case pdfium.FPDF_ERR_SECURITY:
                reason = "The PDF is encrypted."
            case _:
                reason = _BROKEN
        raise InvalidFile(reason) from None
    with document:
        yield document


def _trailer(content: bytes) -> bytes:
    """A trailer for a file without one. It refers to the last catalog. Empty for a truncated file: without its fonts,
    the text would be wrong."""
    if not content.rstrip().endswith(b"endobj"):
        return b""
    root = current = b""
    for found in _OBJECTS.finditer(content):
        if found["object"]:
            current = found["object"]
        else:
            root = current
    return b"\ntrailer\n<< /Root %s R >>\n" % root


def readable_page(document: Any, index: int) -> Any | None:
    """A page of `opened_pdf`; None if it is missing or broken."""
    import pypdfium2

    try:
        return document[index]
    except pypdfium2.PdfiumError:
        return None


def pdf_text(
    content: bytes, most: int, max_pages: int | None = None, *, may_be_empty: bool = False
) -> str:
    """The text of a PDF. Reading ends soon after `most` characters. A note replaces pages that cannot be read; notes
    alone do not count as text unless `may_be_empty` is set. Returns an empty string if there is no text. Raises
    `InvalidFile`, also for a PDF with more than `max_pages` pages, or without a readable page."""
    with opened_pdf(content) as document:
        pages = len(document)
        if max_pages is not None and pages > max_pages:
            raise InvalidFile(f"The PDF has {pages} pages. This server's limit is {max_pages}.")
        parts: list[str] = []
        length = lost = 0
        has_text = False
        for index in range(pages):
            text = _page_text(document, index)
            if text is None:
                lost += 1
                continue
            if lost:
                parts.append(_lost_pages(index, lost))
                lost = 0
            parts.append(text)
            has_text = has_text or bool(text)
            length += len(text)
            if length > most:
                break
        if lost == pages:
            raise InvalidFile(_BROKEN)
        if lost:
            parts.append(_lost_pages(pages, lost))
    if not (has_text or may_be_empty):
        return ""
    return "\n\n".join(part for part in parts if part)


def _lost_pages(last: int, number: int) -> str:
    """A note about `number` unreadable pages, of which `last` is the last."""
    which = f"Page {last}" if number == 1 else f"Pages {last - number + 1} to {last}"
    return f"[{which} of the PDF cannot be read.]"


def _page_text(document: Any, index: int) -> str | None:
    """The text of a page; None if the page is missing or broken."""
    import pypdfium2

    page = readable_page(document, index)
    if page is None:
        return None
    try:
        return _PageText(page.get_textpage()).mended()
    except pypdfium2.PdfiumError:
        return None
    finally:
        page.close()  # also closes its text


class _PageText:
    """The text of a page, and the positions of its characters.

    Corrects three errors in the text that pdfium returns: several spaces at the start of a line are reduced to one;
    hyphens at the ends of lines are missing; and the letters of right-to-left words are reversed if the document stores
    the text of each letter, as documents of Chromium do.
    """

    def __init__(self, page: Any) -> None:
        import pypdfium2.raw as pdfium

        self._pdfium = pdfium
        self._page = page
        length = page.count_chars()
        units = (ctypes.c_ushort * (2 * length + 2))()
        written = pdfium.FPDFText_GetText(page, 0, length, units)
        found = memoryview(units)[: max(written - 1, 0)]  # without the terminating zero
        self._text = found.tobytes().decode("utf-16-le", "surrogatepass")
        self._places: list[int] = []
        """The index of each character in UTF-16, in which pdfium counts."""

    def mended(self) -> str:
        parts: list[str] = []
        start = 0
        for found in _MENDED.finditer(self._text):
            parts += (self._text[start : found.start()], self._mend(found))
            start = found.end()
        parts.append(self._text[start:])
        return "".join(parts).replace("\r\n", "\n").strip("\n").rstrip()

    def _mend(self, found: re.Match[str]) -> str:
        text = found[0]
        if text == _HYPHEN:
            return "-\n"
        if not self._places:
            self._places = [0, *accumulate(1 + (char > "\uffff") for char in self._text)]
        if text == " ":
            first, second = self._origin(found.start()), self._origin(found.end())
            width = self._width(found.start())
            if first is None or second is None or width <= 0:
                return text
            return " " * min(max(round((second - first) / width), 1), _MAX_INDENT)
        first, last = self._origin(found.start()), self._origin(found.end() - 1)
        return text if first is None or last is None or first >= last else text[::-1]

    def _character(self, at: int) -> int | None:
        """The index by which pdfium knows a character of the text; None if the character has no position on the
        page."""
        number: int = self._pdfium.FPDFText_GetCharIndexFromTextIndex(self._page, self._places[at])
        if number < 0 or self._pdfium.FPDFText_GetUnicode(self._page, number) != ord(
            self._text[at]
        ):
            return None
        return None if self._pdfium.FPDFText_IsGenerated(self._page, number) else number

    def _origin(self, at: int) -> float | None:
        """The horizontal position of a character, in points."""
        number = self._character(at)
        x, y = ctypes.c_double(), ctypes.c_double()
        if number is None or not self._pdfium.FPDFText_GetCharOrigin(self._page, number, x, y):
            return None
        return x.value if isfinite(x.value) else None

    def _width(self, at: int) -> float:
        """The width of a character including the space around it, in points; 0 if it is unknown."""
        number = self._character(at)
        box = self._pdfium.FS_RECTF()
        if number is None or not self._pdfium.FPDFText_GetLooseCharBox(self._page, number, box):
            return 0.0
        return float(box.right - box.left)
