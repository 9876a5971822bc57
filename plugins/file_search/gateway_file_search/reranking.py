"""Orders search results by relevance with a model of the gateway."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

import msgspec

from gateway.sdk import ConfigurationError, GatewayError, GatewayServices, Reranker
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.search import Hit

logger = logging.getLogger("gateway.file_search")


class Reranking:
    """The configured model. Available once `use` was called; without it, results stay as they are."""

    def __init__(self, config: FileSearchConfig) -> None:
        self._config = config
        self._reranker: Reranker | None = None
        self._gives_logits = False
        """Whether the model has given a score that is not a share from 0 to 1."""

    def use(self, services: GatewayServices) -> None:
        """Set the model. Raises `ConfigurationError` if it does not exist."""
        if not self._config.reranker:
            return
        try:
            self._reranker = services.reranker(self._config.reranker)
        except ConfigurationError as error:
            raise ConfigurationError(f"tools.file_search.reranker: {error}") from error

    @property
    def is_configured(self) -> bool:
        """Whether a model is configured."""
        return bool(self._config.reranker)

    def candidates(self, limit: int) -> int:
        """The number of results to order, if `limit` are wanted."""
        return max(limit, self._config.reranker_candidates)

    async def ordered(self, queries: Sequence[str], hits: Sequence[Hit]) -> list[Hit] | None:
        """`hits` by their relevance to any of `queries`, best first, with scores from 0 to 1: for several queries, the
        highest.

        None if no model is set, and, with a log message, if it fails or takes too long.
        """
        if self._reranker is None:
            return None
        shown = [hit for hit in hits if hit.text.strip()]
        try:
            async with asyncio.timeout(self._config.reranker_time):
                # One after another: a search takes one place in the model's queue.
                scores = [
                    await self._reranker.scores(query, [hit.text for hit in shown])
                    for query in queries
                ]
        except TimeoutError:
            reason = f"it took longer than {self._config.reranker_time:g} seconds"
        except GatewayError as error:
            reason = error.message
        else:
            return self._with_scores(shown, [max(each) for each in zip(*scores, strict=True)])
        logger.warning(
            "file_search: the model %r could not order results, which stay in the order of the search: %s",
            self._config.reranker,
            reason,
        )
        return None

    def _with_scores(self, hits: Sequence[Hit], scores: Sequence[float]) -> list[Hit]:
        self._gives_logits = self._gives_logits or not all(0 <= each <= 1 for each in scores)
        order = sorted(range(len(hits)), key=lambda index: -scores[index])
        return [msgspec.structs.replace(hits[i], score=self._share(scores[i])) for i in order]

    def _share(self, score: float) -> float:
        """A score from 0 to 1."""
        if self._gives_logits:
            score = (1 + math.tanh(score / 2)) / 2  # the logistic function, without an overflow
        return round(score, 6)
