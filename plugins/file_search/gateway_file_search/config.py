"""`[tools.file_search]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive, Seconds


class FileSearchConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.file_search]`."""

    path: str = ""
    """The folder of the index; relative to the working directory. Server processes may share it. Empty: the folder of
    the files (`resources.files.path`)."""
    embeddings: str = ""
    """The configured model, or its alias, that embeds chunks for search by meaning. Empty: search by words only."""
    query_prefix: str = ""
    """Prefix that the model expects before a query (`query: `)."""
    passage_prefix: str = ""
    """Prefix that the model expects before a passage of a file (`passage: `)."""
    embedding_batch: Annotated[int, Meta(ge=1, le=512)] = 16
    """Number of chunks that are embedded per call."""
    embedding_patience: Seconds = 600.0
    """Seconds for which a file waits for a failing model before it is marked as failed."""
    query_time: Seconds = 5.0
    """Seconds for embedding the queries of a search; after that, the search is by words only."""
    search_time: Seconds = 10.0
    """Seconds for one search of the index, from its turn on. A search that takes longer fails."""
    reranker: str = ""
    """The configured model, or its alias, that orders the results of a search by their relevance. Empty: they stay in the
    order of the search."""
    reranker_candidates: Annotated[int, Meta(ge=1, le=200)] = 30
    """Number of results that the model orders, if more are not wanted. The best of them are the results."""
    reranker_time: Seconds = 5.0
    """Seconds for ordering the results of a search; after that, they stay in the order of the search."""
    results: Annotated[int, Meta(ge=1, le=50)] = 10
    """Number of search results, if a request does not say."""
    max_vector_stores: Positive = 1000
    """Maximum number of vector stores of one API key."""
    max_files_per_store: Positive = 10_000
    """Maximum number of files in one vector store."""
    max_index_bytes: Positive = 10_737_418_240
    """Maximum size in bytes of the text in all vector stores of one API key. A file counts in each store that
    contains it, including the overlaps of its chunks."""
    max_text: Positive = 16_777_216
    """Maximum number of characters of one file's text. A file that exceeds it is refused."""
    indexing: Annotated[int, Meta(ge=1, le=64)] = 2
    """Number of files that each process reads concurrently."""
    reading_time: Seconds = 60.0
    """Seconds in which a helper process must read a file."""
    reading_memory: Annotated[int, Meta(ge=134_217_728)] = 1_073_741_824
    """Memory limit of a helper process, in bytes."""
    time_limit: Seconds = 20.0
    """Seconds for one search by a model."""
    output_limit: Annotated[int, Meta(ge=1000)] = 65_536
    """Maximum size in bytes of one search result that the model reads; as many results as fit are included."""
