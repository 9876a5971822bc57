"""The models that may answer a request are tried in turn; the limits of its key are asked once."""

from __future__ import annotations

import pytest

from gateway.access.limiter import Limiter
from gateway.answers.attempts import Attempts
from gateway.base.errors import EngineError, RequestLimitReached
from gateway.models.model_lookup import ModelLookup
from gateway.models.model_slots import ModelSlots
from gateway.models.routing import Routes, Routing
from gateway.observe.metrics import Metrics
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Principal, PrincipalLimits

pytestmark = pytest.mark.anyio

ADA = Principal(
    name="ada", limits=PrincipalLimits(max_concurrent_requests=1, requests_per_minute=1)
)


LOOKUP = ModelLookup(
    ModelSlots(Metrics(), max_loaded=None, wait_seconds=1), Routing(Routes({})), lambda: None
)
"""There are no models, so that none needs to be loaded."""


async def planned(model: str | None) -> str:
    assert model is not None
    return model


def attempts(limiter: Limiter) -> Attempts[str]:
    return Attempts(["first", "second"], planned, LOOKUP, Metrics(), limiter)


async def test_a_request_that_was_admitted_is_not_refused_at_its_next_model() -> None:
    """Others of its key that wait for their preparation, or are refused, do not end it."""
    limiter = Limiter(None)
    with within(RequestContext("req_1", principal=ADA)):
        tried = attempts(limiter)
        with tried:
            assert await tried.begin() == "first"
        admitted = await limiter.admit(ADA, prompt=1, output=1)
        assert admitted is not None
        with pytest.raises(RequestLimitReached):
            await limiter.admit(ADA, prompt=1, output=1)
        with pytest.raises(RequestLimitReached):
            limiter.prepare(ADA)
        with tried:
            assert await tried.after(EngineError("It is away.")) == "second"


async def test_a_request_is_being_prepared_until_the_first_context_is_left() -> None:
    limiter = Limiter(None)
    with within(RequestContext("req_1", principal=ADA)):
        tried = attempts(limiter)
        for _ in range(2):
            with tried:
                pass
            prepared = limiter.prepare(ADA)
            assert prepared is not None
            prepared.end()
        with attempts(limiter), pytest.raises(RequestLimitReached, match="being prepared"):
            limiter.prepare(ADA)
