"""`[tools.file_search]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]


class FileSearchConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.file_search]`."""

    path: str = ""
    """The folder that holds the files and the index, which server processes may share; relative to the working
    directory. Empty: a temporary one of this process, gone with it."""
    embeddings: str = ""
    """The configured model, or its alias, by whose vectors chunks are found as well. Empty: words alone are looked for."""
    query_prefix: str = ""
    """What that model wants before a query (`query: `)."""
    passage_prefix: str = ""
    """Likewise, before a passage of a file (`passage: `)."""
    embedding_batch: Annotated[int, Meta(ge=1, le=512)] = 16
    """Chunks that are embedded at once."""
    embedding_patience: Seconds = 600.0
    """Seconds for which a file waits for a model that fails, before the file is failed."""
    query_time: Seconds = 5.0
    """Seconds for the embedding of a search's queries, after which words alone are looked for."""
    results: Annotated[int, Meta(ge=1, le=50)] = 10
    """Results of a search, where a request says no number."""
    max_file_bytes: Count = 67_108_864
    """The largest file."""
    max_total_bytes: Count = 10_737_418_240
    """Bytes of all files of one API key."""
    max_files: Count = 10_000
    """Files of one API key."""
    max_vector_stores: Count = 1000
    """Vector stores of one API key."""
    max_files_per_store: Count = 10_000
    """Files in one vector store."""
    max_text: Count = 16_777_216
    """Characters of one file's text; a file with more is refused."""
    indexing: Annotated[int, Meta(ge=1, le=64)] = 2
    """How many files each process reads at once."""
    reading_time: Seconds = 60.0
    """Seconds in which an HTML page or a PDF must be read, by a process of its own."""
    reading_memory: Annotated[int, Meta(ge=134_217_728)] = 1_073_741_824
    """Bytes of memory of that process."""
    time_limit: Seconds = 20.0
    """Seconds for one search of a model."""
    output_limit: Annotated[int, Meta(ge=1000)] = 65_536
    """Bytes that the model reads of one search at most: as many results as fit."""
