"""The contract of scoring engines, as tests to inherit. The checks are in `gateway_doctor.checks.scoring_checks`."""

from __future__ import annotations

import pytest

from gateway.plugins.protocols import Engine
from gateway_doctor.checks import scoring_checks as checks
from gateway_doctor.checks.engine_probe import Probe
from gateway_testing.probed_engine import ProbedEngine


@pytest.mark.anyio
class ScoreContract(ProbedEngine):
    """Subclass this and provide a fixture `engine`: an open engine whose capabilities include `rerank`. The asynchronous
    fixture may have any scope up to module scope."""

    def probe(self, engine: Engine) -> Probe:
        probe = Probe(engine, time_limit=self.time_limit)
        checks.scorer(probe)  # fails for an engine that does not rerank
        return probe

    async def test_it_says_what_it_is(self, engine: Engine) -> None:
        await self.holds(engine, checks.scoring_says_what_it_is)

    async def test_each_pair_gets_its_score(self, engine: Engine) -> None:
        await self.holds(engine, checks.each_pair_gets_its_score)

    async def test_a_pair_has_one_score_wherever_it_stands(self, engine: Engine) -> None:
        await self.holds(engine, checks.a_pair_has_one_score)

    async def test_sixteen_requests_at_once_do_not_mix(self, engine: Engine) -> None:
        await self.holds(engine, checks.scorings_do_not_mix)

    async def test_what_is_too_long_is_refused_by_name(self, engine: Engine) -> None:
        await self.holds(engine, checks.what_is_too_long_is_refused)

    async def test_texts_are_truncated_where_the_engine_can(self, engine: Engine) -> None:
        await self.holds(engine, checks.texts_are_truncated)

    async def test_cancelling_aborts_and_the_engine_goes_on(self, engine: Engine) -> None:
        await self.holds(engine, checks.cancelling_aborts_scoring)

    async def test_adapters_are_asked_for_by_name(self, engine: Engine) -> None:
        await self.holds(engine, checks.adapters_score)
