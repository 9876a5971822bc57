"""What every engine that embeds promises, as tests to inherit. `gateway.testing.embedding_checks` has the promises."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

import pytest

from gateway.protocols import Engine
from gateway.testing import embedding_checks as checks
from gateway.testing.engine_probe import NotOffered, Probe


@pytest.mark.anyio
class EmbeddingContract:
    """Subclass it, and give a fixture `engine`: an open engine whose capabilities have `embeddings`; the asynchronous
    fixture may have any scope up to the module's.
    """

    bad_token_ids: ClassVar[Sequence[int]] = (-1, 2**40)
    """Ids that are outside of the vocabulary."""
    time_limit: ClassVar[float] = 60.0
    """Seconds in which any single step must be over."""

    @pytest.fixture(scope="module")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"

    async def holds(self, engine: Engine, check: Callable[[Probe], Awaitable[None]]) -> None:
        """Run one check; skips what the engine does not offer."""
        probe = Probe(engine, bad_token_ids=self.bad_token_ids, time_limit=self.time_limit)
        checks.embedder(probe)  # an engine that does not embed has no business here
        try:
            await check(probe)
        except NotOffered as error:
            pytest.skip(str(error))

    async def test_it_says_what_it_is(self, engine: Engine) -> None:
        await self.holds(engine, checks.embedding_says_what_it_is)

    async def test_each_input_gets_its_vector(self, engine: Engine) -> None:
        await self.holds(engine, checks.each_input_gets_its_vector)

    async def test_a_text_has_one_vector_wherever_it_stands(self, engine: Engine) -> None:
        await self.holds(engine, checks.a_text_has_one_vector)

    async def test_sixteen_requests_at_once_do_not_mix(self, engine: Engine) -> None:
        await self.holds(engine, checks.requests_do_not_mix)

    async def test_shorter_vectors_are_the_beginnings_of_longer_ones(self, engine: Engine) -> None:
        await self.holds(engine, checks.shorter_vectors_are_the_beginnings)

    async def test_what_cannot_be_embedded_is_refused_by_name(self, engine: Engine) -> None:
        await self.holds(engine, checks.what_cannot_be_embedded_is_refused)

    async def test_cancelling_aborts_and_the_engine_goes_on(self, engine: Engine) -> None:
        await self.holds(engine, checks.cancelling_aborts_embedding)

    async def test_adapters_are_asked_for_by_name(self, engine: Engine) -> None:
        await self.holds(engine, checks.adapters_embed)
