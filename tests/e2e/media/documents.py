"""Documents in requests, and what the model `reading` says of them."""

from __future__ import annotations

import base64
from typing import Any

from tests.pdf_files import text_pdf

TOWER = text_pdf("A tower of iron", "is 312 metres high")
READ = "A tower of iron\n\nis 312 metres high"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def file(data: bytes, name: str = "tower.pdf", **fields: Any) -> dict[str, Any]:
    url = f"data:application/octet-stream;base64,{encoded(data)}"
    return {"type": "input_file", "filename": name, "file_data": url, **fields}


def marked(name: str, text: str = READ) -> str:
    return f"[File: {name}]\n{text}\n[End of file: {name}]"
