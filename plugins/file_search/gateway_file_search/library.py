"""All that is stored, open: what the routes and the tool of one gateway share."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from gateway.errors import ConfigurationError
from gateway_file_search import stores
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import Database
from gateway_file_search.embedding import Embedding
from gateway_file_search.filters import Filter
from gateway_file_search.indexer import Indexer
from gateway_file_search.ranking import PLAIN, Ranking
from gateway_file_search.search import Hit, note_use, search

logger = logging.getLogger("gateway.file_search")

_open: dict[asyncio.AbstractEventLoop, Library] = {}
"""By the event loop of their gateway: a gateway is one loop, and its routes and tools are opened apart."""


class Library:
    """Files, vector stores and their indexes. `owner` is the name of an API key, or empty."""

    def __init__(
        self, database: Database, embedding: Embedding, indexer: Indexer, config: FileSearchConfig
    ) -> None:
        self.database = database
        self.embedding = embedding
        self.indexer = indexer
        self.config = config

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
        found, numbers = await self.database.snapshot(
            lambda connection: (
                search(
                    connection,
                    numbers := [
                        stores.find_usable(connection, owner, each)["seq"]
                        for each in dict.fromkeys(store_ids)
                    ],
                    queries,
                    near=near,
                    wanted=wanted,
                    limit=limit,
                    ranking=ranking,
                ),
                numbers,
            )
        )
        await self.database.write(lambda connection: note_use(connection, numbers))
        return found


@asynccontextmanager
async def open_library(config: FileSearchConfig) -> AsyncIterator[Library]:
    """The library of `config`, and of this event loop. Raises `ConfigurationError`."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        folder = Path(config.path)
        if not config.path:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-files-")))
            logger.info(
                "file_search: files are kept in a temporary folder of this process, and are gone with it; "
                "tools.file_search.path names a folder to keep and to share"
            )
        database = await asyncio.to_thread(Database, folder)
        stack.callback(database.close)
        embedding = Embedding(database, config)
        indexer = Indexer(database, config, embedding)
        await stack.enter_async_context(indexer.running())
        library = _open[loop] = Library(database, embedding, indexer, config)
        try:
            yield library
        finally:
            if _open.get(loop) is library:
                del _open[loop]


def library_here() -> Library:
    """The library of the running gateway. Raises `ConfigurationError` where it has none."""
    library = _open.get(asyncio.get_running_loop())
    if library is None:
        raise ConfigurationError(
            "server.routes names file_search, whose files are those of the tool: add a table [tools.file_search]."
        )
    return library
