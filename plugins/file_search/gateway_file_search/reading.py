"""Extracts the chunks of a document's text. `extraction` runs this in a helper process."""

from __future__ import annotations

from gateway.sdk.documents import read_text
from gateway_file_search.chunks import chunked
from gateway_file_search.objects import StaticSizes


def read_chunks(
    content: bytes, filename: str, most: int, chunk_tokens: int, overlap_tokens: int
) -> list[tuple[int, str]]:
    """The chunks of a file's text, each with its start. Raises `InvalidFile`, also if the text exceeds `most`
    characters."""
    text = read_text(content, filename, most)
    sizes = StaticSizes(max_chunk_size_tokens=chunk_tokens, chunk_overlap_tokens=overlap_tokens)
    return [(chunk.start, chunk.text) for chunk in chunked(text, sizes)]
