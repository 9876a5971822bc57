"""Base class for engines whose model scores texts and does not generate."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.base.errors import Unsupported
from gateway.plugins.protocols import EngineOutput, EngineRequest


class ScoringOnly:
    """The methods of `Engine` that generate, for engines that only score. They raise `Unsupported`."""

    async def check(self, request: EngineRequest) -> None:
        raise only_scores()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        raise only_scores()
        yield EngineOutput()


def only_scores() -> Unsupported:
    """The error for a request to generate."""
    return Unsupported("This model only reranks. Use /v1/rerank.", param="model")
