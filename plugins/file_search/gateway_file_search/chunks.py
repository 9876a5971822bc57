"""Splits a text into overlapping chunks."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from gateway_file_search.objects import StaticSizes

_ENDS: Final = ("\n\n", "\n", ". ", " ")
"""Preferred places to end a chunk, best first."""
_WORD_START = re.compile(r"\s\S")


class DocumentChunk(Struct, frozen=True):
    """A part of a file's text, which begins at character `start`."""

    start: int
    text: str


def chunked(text: str, sizes: StaticSizes) -> list[DocumentChunk]:
    """The chunks of `text`. They cover everything except leading and trailing white space.

    Sizes are estimated, because the text is for any model: a token is four ASCII characters or two others.
    """
    others = sum(not character.isascii() for character in text)
    per_token = len(text) / (((len(text) - others) / 4 + others / 2) or 1)
    size = max(int(sizes.max_chunk_size_tokens * per_token), 8)
    overlap = min(int(sizes.chunk_overlap_tokens * per_token), size // 2)
    found: list[DocumentChunk] = []
    start, end = 0, len(text.rstrip())
    start = len(text) - len(text.lstrip())
    while start < end:
        stop = start + size
        if stop >= end:
            found.append(DocumentChunk(start, text[start:end]))
            break
        stop = _end_at_boundary(text, stop - size // 4, stop)
        found.append(DocumentChunk(start, text[start:stop]))
        following = stop - overlap
        if overlap and (word := _WORD_START.search(text, following, stop)):
            following = word.end() - 1
        start = following
    return found


def joined(chunks: list[DocumentChunk]) -> str:
    """The text that `chunks` were made from."""
    first = chunks[0].start if chunks else 0
    parts: list[str] = []
    length = 0
    for chunk in chunks:
        part = chunk.text[max(length - (chunk.start - first), 0) :]
        parts.append(part)
        length += len(part)
    return "".join(parts)


def _end_at_boundary(text: str, least: int, most: int) -> int:
    for mark in _ENDS:
        if (at := text.rfind(mark, least, most)) >= 0:
            return at + len(mark)
    return most
