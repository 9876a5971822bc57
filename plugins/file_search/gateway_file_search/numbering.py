"""The ids of chunks: a file's number in its store, and the chunk's within the file."""

from __future__ import annotations

from typing import Final

CHUNKS_OF_A_FILE: Final = 20
"""Bits of a chunk's id that count within its file; those above are the file's number."""


def span_of(file: int) -> tuple[int, int]:
    """The first id of a file's chunks, and the first beyond them."""
    return file << CHUNKS_OF_A_FILE, (file + 1) << CHUNKS_OF_A_FILE
