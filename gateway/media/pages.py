"""Reading the text and the pages of documents. Runs in helper processes with limits on memory and time."""

from __future__ import annotations

from typing import Any, Final

from gateway.media.documents.failures import InvalidFile, UnsupportedFile
from gateway.media.documents.pdf import is_pdf, opened_pdf, readable_page
from gateway.media.documents.text import read_text

_SMALLEST: Final = 1e-3
"""Smallest size of a page in points. Pages of broken documents may have a size of zero."""


def read_document(
    content: bytes, filename: str, max_text: int, max_pages: int, max_images: int, side: int
) -> tuple[str, list[tuple[bytes, str, int, int]]]:
    """The text of a document and, if it is a PDF and `max_images` is not 0, images of its pages.

    Each image is an encoded file with its media type, width and height; the longer side has `side` pixels. The text of
    a PDF may be empty if there are images of its pages. Raises `InvalidFile`, also for a PDF with more than
    `max_images` pages.
    """
    shows = bool(max_images) and is_pdf(content)
    text = read_text(content, filename, max_text, max_pages=max_pages, may_be_empty=shows)
    text = text.strip("\n")
    return text, page_images(content, max_images, side) if shows else []


def page_images(content: bytes, most: int, side: int) -> list[tuple[bytes, str, int, int]]:
    """Images of the pages of a PDF, as `read_document` returns them. Unreadable pages are left out; the text names
    them. Raises `InvalidFile` if there are more than `most` pages."""
    try:
        from gateway.media.images import encoded_image
    except ImportError:
        raise UnsupportedFile(
            "This server cannot show pages as images. Leave out 'detail', to send the text of the document."
        ) from None
    images = []
    with opened_pdf(content) as document:
        if (pages := len(document)) > most:
            raise InvalidFile(
                f"The PDF has {pages} pages. This server shows at most {most} as images: send fewer, or leave out "
                "'detail', to send the text."
            )
        for index in range(pages):
            if (page := readable_page(document, index)) is not None:
                images.append(encoded_image(_drawn(page, side), lossless=True))
                page.close()
    return images


def _drawn(page: Any, side: int) -> Any:
    """A page as an image of Pillow."""
    from pypdfium2 import PdfiumError  # type: ignore[import-untyped]

    width, height = page.get_size()
    longer, shorter = max(width, height), min(width, height)
    if not (shorter > _SMALLEST and longer < float("inf")):
        raise InvalidFile("The PDF has a page without a size.")
    try:
        bitmap = page.render(scale=side / longer, may_draw_forms=False)
    except PdfiumError as error:
        raise InvalidFile(f"The pages of the PDF cannot be drawn: {error}.") from None
    # The renderer rounds sizes up.
    return (
        bitmap.to_pil()
        .convert("RGB")
        .crop((0, 0, min(bitmap.width, side), min(bitmap.height, side)))
    )
