"""Extracts the chunks of a file's text in a helper process."""

from __future__ import annotations

from gateway.sdk.documents import DocumentReader
from gateway.sdk.processes import HelperFailure
from gateway_file_search.chunks import DocumentChunk
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.objects import StaticSizes
from gateway_file_search.reading import read_chunks


def new_reader(config: FileSearchConfig) -> DocumentReader:
    """The processes that read files."""
    return DocumentReader(
        processes=config.indexing,
        seconds=config.reading_time,
        memory=config.reading_memory,
        max_text=config.max_text,
        preload="gateway_file_search.reading",
    )


async def chunks_of(
    content: bytes, filename: str, sizes: StaticSizes, reader: DocumentReader
) -> list[DocumentChunk]:
    """The chunks of a document. Raises `ReadingFailure`."""
    try:
        found = await reader.pool.run(
            read_chunks,
            content,
            filename,
            reader.max_text,
            sizes.max_chunk_size_tokens,
            sizes.chunk_overlap_tokens,
            seconds=reader.seconds,
        )
    except HelperFailure as failure:
        raise reader.failure(failure) from None
    return [DocumentChunk(start, text) for start, text in found]
