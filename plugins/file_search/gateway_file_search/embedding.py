"""Creates the vectors of chunks and queries with a model of the gateway."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Sequence
from typing import Final

from gateway.sdk import ConfigurationError, Embedder, GatewayError, GatewayServices, InvalidRequest
from gateway_file_search import vectors
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.database import VectorStoreDatabase
from gateway_file_search.search import QueryVectors

logger = logging.getLogger("gateway.file_search")

_PROBE: Final = (
    "The tower was opened in 1931, and has a height of 312 metres.",
    "def main() -> None:\n    return None",
    "水は摂氏百度で沸騰する。",
)
"""Texts whose vectors identify a model."""


class ChunkEmbedder:
    """Vectors from the configured model. Available once `use` was called; callers wait until then."""

    def __init__(self, database: VectorStoreDatabase, config: FileSearchConfig) -> None:
        self._database = database
        self._config = config
        self._embedder: Embedder | None = None
        self._given = asyncio.Event()
        self._space: int | None = None
        self._finding = asyncio.Lock()

    @property
    def is_configured(self) -> bool:
        """Whether a model is configured."""
        return bool(self._config.embeddings)

    @property
    def known_space(self) -> int | None:
        """The number of the model's vector space, or None if it is not known yet."""
        return self._space

    def use(self, services: GatewayServices) -> None:
        """Set the model. Raises `ConfigurationError` if it does not exist."""
        if not self.is_configured:
            return
        try:
            self._embedder = services.embedder(self._config.embeddings)
        except ConfigurationError as error:
            raise ConfigurationError(f"tools.file_search.embeddings: {error}") from error
        self._given.set()

    async def wait_until_available(self) -> None:
        """Returns once the model is available, or immediately if none is configured."""
        if self.is_configured:
            await self._given.wait()

    async def space(self) -> int:
        """The number of the model's vector space. Raises the model's error if it fails."""
        await self._given.wait()
        async with self._finding:
            if self._space is None:
                probe = await self._embedded(
                    [self._config.passage_prefix + each for each in _PROBE]
                )
                self._space = await self._database.write(
                    lambda c: vectors.space_of(c, self._config.embeddings, probe)
                )
        return self._space

    async def of_queries(self, queries: Sequence[str]) -> QueryVectors | None:
        """The vectors of queries. None, with a log message, if the model fails or takes too long."""
        if self._embedder is None:
            return None
        try:
            async with asyncio.timeout(self._config.query_time):
                space = await self.space()
                made = await self._embedded([self._config.query_prefix + each for each in queries])
        except TimeoutError:
            reason = f"it took longer than {self._config.query_time:g} seconds"
        except GatewayError as error:
            reason = error.message
        else:
            return QueryVectors(space, made)
        logger.warning(
            "file_search: the model %r could not embed a query, whose words alone are looked for: %s",
            self._config.embeddings,
            reason,
        )
        return None

    async def of_chunks(self, texts: Sequence[str]) -> list[array[float] | None]:
        """The vectors of chunks; None for a chunk that the model rejects. Raises if the model fails."""
        prefixed = [self._config.passage_prefix + each for each in texts]
        try:
            return list(await self._embedded(prefixed))
        except InvalidRequest:
            return [await self._of_chunk(each) for each in prefixed]

    async def _of_chunk(self, text: str) -> array[float] | None:
        try:
            [vector] = await self._embedded([text])
        except InvalidRequest as error:
            logger.warning(
                "file_search: the model %r refuses a passage, which is found by its words alone: %s",
                self._config.embeddings,
                error.message,
            )
            return None
        return vector

    async def _embedded(self, texts: Sequence[str]) -> Sequence[array[float]]:
        assert self._embedder is not None, "`wait_until_available` was not called"
        return await self._embedder.embed(texts)
