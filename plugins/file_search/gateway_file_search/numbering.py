"""Ids of chunks, composed of the file's number in its store and the chunk's number in the file."""

from __future__ import annotations

from typing import Final

CHUNKS_OF_A_FILE: Final = 20
"""Number of low bits of a chunk's id that number it within its file; the higher bits are the file's number."""


def span_of(file: int) -> tuple[int, int]:
    """The first id of a file's chunks, and the first id after them."""
    return file << CHUNKS_OF_A_FILE, (file + 1) << CHUNKS_OF_A_FILE
