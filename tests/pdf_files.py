"""PDFs that are written by hand."""

from __future__ import annotations

import io

CATALOGUE = b"<< /Type /Catalog /Pages 2 0 R >>"


def text_pdf(*pages: str) -> bytes:
    """A PDF whose pages have one line of text each."""
    objects = [CATALOGUE, b""]
    kids = []
    for text in pages:
        objects.append(stream(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()))
        font = b"<< /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources %s /Contents %d 0 R >>"
            % (font, len(objects))
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    return pdf_of(*objects)


def pdf_of(*objects: bytes, trailer: bytes = b"") -> bytes:
    """A PDF file of objects from number 1 on; the first is the catalogue."""
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    offsets = []
    for number, content in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % offset for offset in offsets)
    out.write(
        b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF"
        % (len(objects) + 1, trailer.replace(b"START", b"%d" % start), start)
    )
    return out.getvalue()


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """A stream object, with further entries of its dictionary."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)
