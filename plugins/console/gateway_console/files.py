"""The files of the page, read once at start-up."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from msgspec import Struct

PAGE: Final = "index.html"
VENDOR: Final = "vendor/"
"""Prefix of the names of libraries. Each has its version in its path."""
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
_COMPRESSED: Final = frozenset({"woff2"})
"""Formats that are compressed already."""


class StaticFile(Struct, frozen=True):
    """One file, as it is and compressed."""

    content: bytes
    compressed: bytes | None
    content_type: str
    etag: str


@cache
def read_files() -> Mapping[str, StaticFile]:
    """All files of the page, by their paths below its folder."""
    return dict(_found(files("gateway_console").joinpath("static"), ""))


def _found(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _found(each, f"{prefix}{each.name}/")
            continue
        suffix = each.name.rpartition(".")[2]
        if suffix in _TYPES:
            yield f"{prefix}{each.name}", _read(each.read_bytes(), suffix)


def _read(content: bytes, suffix: str) -> StaticFile:
    digest = hashlib.sha256(content).hexdigest()[:32]
    compressed = None if suffix in _COMPRESSED else gzip.compress(content, mtime=0)
    return StaticFile(content, compressed, _TYPES[suffix], f'"{digest}"')
