"""Reads the text of PDF documents."""

from __future__ import annotations

import io

from gateway.documents.failures import InvalidFile


def is_pdf(content: bytes) -> bool:
    return b"%PDF-" in content[:1024]


def pdf_text(content: bytes, most: int, max_pages: int | None = None) -> str:
    """The text of a PDF, without most of what exceeds `most` characters. Raises `InvalidFile`, also for a PDF with more
    than `max_pages` pages."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise InvalidFile("The PDF is protected by a password.")
        if max_pages is not None and (pages := len(reader.pages)) > max_pages:
            raise InvalidFile(f"The PDF has {pages} pages. This server's limit is {max_pages}.")
        parts: list[str] = []
        length = 0
        for page in reader.pages:
            parts.append(page.extract_text().strip())
            length += len(parts[-1])
            if length > most:
                break
    except DependencyError:
        raise InvalidFile("The PDF is encrypted.") from None
    except (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:  # fmt: skip
        # pypdf raises these errors on malformed files.
        reason = " ".join(str(error)[:1000].split())[:200] or type(error).__name__
        raise InvalidFile(f"The PDF is broken: {reason}.") from None
    return "\n\n".join(part for part in parts if part)
