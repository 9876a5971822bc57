"""The open library of vector stores, shared by the routes and the tool of one gateway."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.sdk import ConfigurationError, InvalidRequest, RateLimited
from gateway.sdk.files import FileObject, ReadTooLong
from gateway.sdk.processes import ShareExceeded
from gateway_file_search import store_files, stores
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import VectorStoreDatabase
from gateway_file_search.embedding import ChunkEmbedder
from gateway_file_search.filters import Filter
from gateway_file_search.indexer import Indexer
from gateway_file_search.old_files import move_old_files
from gateway_file_search.ranking import PLAIN, Ranking
from gateway_file_search.requests import Attachment
from gateway_file_search.reranking import Reranking
from gateway_file_search.search import Hit, mark_active, search
from gateway_files.files import Files

_open: dict[asyncio.AbstractEventLoop, VectorStoreLibrary] = {}
"""Open libraries by event loop. A gateway has one event loop, but its routes and tools are opened separately."""


class VectorStoreLibrary:
    """Vector stores of files, and their indexes. `owner` is the name of an API key, or empty."""

    def __init__(
        self,
        database: VectorStoreDatabase,
        files: Files,
        embedding: ChunkEmbedder,
        indexer: Indexer,
        config: FileSearchConfig,
    ) -> None:
        self.database = database
        self.files = files
        self.embedding = embedding
        self.reranking = Reranking(config)
        self.indexer = indexer
        self.config = config

    async def files_of(self, owner: str, wanted: Sequence[Attachment]) -> Mapping[str, FileObject]:
        """The wanted files that the owner has, by id."""
        return await self.files.find(owner, {each.file_id for each in wanted})

    async def search(
        self,
        owner: str,
        store_ids: Sequence[str],
        queries: Sequence[str],
        *,
        wanted: Filter | None,
        limit: int,
        ranking: Ranking = PLAIN,
    ) -> list[Hit]:
        """The best chunks of an owner's vector stores for any of `queries`, best first. Raises `NotFound`."""
        near = await self.embedding.of_queries(queries) if ranking.embedding_weight else None
        reranks = ranking.reranks and self.reranking.is_configured

        def work(
            connection: sqlite3.Connection, check: Callable[[], None]
        ) -> tuple[list[Hit], list[int]]:
            numbers = [
                stores.find_usable(connection, owner, each)["seq"]
                for each in dict.fromkeys(store_ids)
            ]
            found = search(
                connection,
                numbers,
                queries,
                near=near,
                wanted=wanted,
                limit=self.reranking.candidates(limit) if reranks else limit,
                # The threshold is one of the final scores.
                threshold=0.0 if reranks else ranking.threshold,
                ranking=ranking,
                check=check,
            )
            return found, numbers

        try:
            found, numbers = await self.database.read_long(work, seconds=self.config.search_time)
        except ShareExceeded:
            raise RateLimited("Too many of your searches wait. Send fewer at once.") from None
        except ReadTooLong:
            raise InvalidRequest(
                f"The search took longer than {self.config.search_time:g} seconds. Send fewer or shorter queries, or search fewer "
                "files.",
                param="query",
                code="search_timeout",
            ) from None
        await self.database.write(lambda connection: mark_active(connection, numbers))
        if reranks and found:
            found = await self.reranking.ordered(queries, found) or found
            found = [hit for hit in found if hit.score >= ranking.threshold]
        return found[:limit]


@asynccontextmanager
async def open_library(config: FileSearchConfig, files: Files) -> AsyncIterator[VectorStoreLibrary]:
    """Open the library of `config` for this event loop. Raises `ConfigurationError`."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        folder = Path(config.path) if config.path else files.folder
        database = await asyncio.to_thread(VectorStoreDatabase, folder)
        stack.callback(database.close)
        await move_old_files(database, files, is_temporary=files.is_temporary)

        async def forget(file_ids: Sequence[str]) -> None:
            await database.write(lambda connection: store_files.forget(connection, file_ids))

        stack.enter_context(files.forgotten_by(forget))
        embedding = ChunkEmbedder(database, config)
        indexer = Indexer(database, files, config, embedding)
        await stack.enter_async_context(indexer.running())
        library = _open[loop] = VectorStoreLibrary(database, files, embedding, indexer, config)
        try:
            yield library
        finally:
            if _open.get(loop) is library:
                del _open[loop]


def running_library() -> VectorStoreLibrary:
    """The library of the running gateway. Raises `ConfigurationError` if there is none."""
    library = _open.get(asyncio.get_running_loop())
    if library is None:
        raise ConfigurationError(
            "The API 'file_search' needs the tool: add a table [tools.file_search]."
        )
    return library
