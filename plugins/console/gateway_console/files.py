"""The files of the page, read once at start-up."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from msgspec import Struct

PAGE: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(Struct, frozen=True):
    """One file, as it is and compressed."""

    content: bytes
    compressed: bytes
    content_type: str
    etag: str


def read_files() -> Mapping[str, StaticFile]:
    """All files of the page, by name."""
    found = {}
    for each in files("gateway_console").joinpath("static").iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if kind is None:
            continue
        content = each.read_bytes()
        digest = hashlib.sha256(content).hexdigest()[:32]
        found[each.name] = StaticFile(content, gzip.compress(content, mtime=0), kind, f'"{digest}"')
    return found
