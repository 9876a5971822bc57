"""The contract of embedding engines, as tests to inherit. The checks are in `gateway_doctor.checks.embedding_checks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from gateway.plugins.protocols import Engine
from gateway_doctor.checks import embedding_checks as checks
from gateway_doctor.checks.engine_probe import Probe
from gateway_testing.probed_engine import ProbedEngine


@pytest.mark.anyio
class EmbeddingContract(ProbedEngine):
    """Subclass this and provide a fixture `engine`: an open engine whose capabilities include `embeddings`. The
    asynchronous fixture may have any scope up to module scope."""

    bad_token_ids: ClassVar[Sequence[int]] = (-1, 2**40)
    """Ids outside the vocabulary."""

    def probe(self, engine: Engine) -> Probe:
        probe = Probe(engine, bad_token_ids=self.bad_token_ids, time_limit=self.time_limit)
        checks.embedder(probe)  # fails for an engine that does not embed
        return probe

    async def test_it_says_what_it_is(self, engine: Engine) -> None:
        await self.holds(engine, checks.embedding_info_is_complete)

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
