"""The contract of routers, as tests to inherit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import pytest
from msgspec import structs

from gateway.base.errors import GatewayError
from gateway.plugins.protocols import ModelLoad, Router, RoutingRequest
from gateway_doctor.checks.loop_watch import loop_stays_free
from gateway_testing.closing_contract import ClosingContract
from gateway_testing.on_asyncio import OnAsyncio

HOSTILE = ("", "no such model", "x" * 100_000, "a/b:c@d", "\x00\ud800", "'; DROP TABLE models; --")


@pytest.mark.anyio
class RouterContract(ClosingContract, OnAsyncio):
    """Subclass this, provide a fixture `router` (an open router), and set `model` and `models`."""

    model: ClassVar[str | None]
    """The model of a request that the router routes."""
    models: ClassVar[Sequence[str]]
    """The models that can answer this request."""

    @pytest.fixture
    def router(self) -> Router:
        raise NotImplementedError("give the fixture `router`")

    def request(self, *, waiting: int = 0) -> RoutingRequest:
        """A request that the router routes. `waiting` requests are waiting for each model."""
        return RoutingRequest(
            api="responses",
            model=self.model,
            owner=None,
            size=100,
            models=[
                ModelLoad(name=name, running=0, waiting=waiting, max_running=8, max_waiting=8)
                for name in self.models
            ],
        )

    async def use_once(self, opened: Router) -> None:
        await opened.candidates(self.request())

    async def test_it_names_models_that_can_answer(self, router: Router) -> None:
        """This holds for idle and for busy models."""
        for waiting in (0, 8):
            found = await router.candidates(self.request(waiting=waiting))
            assert found is not None, "it does not route its own request"
            _names(found)
            assert set(found) & set(self.models), f"none of {found} can answer"

    async def test_any_model_may_be_asked_for(self, router: Router) -> None:
        """The router leaves the request to the next router, or refuses it with an error for the client."""
        for name in (*HOSTILE, None):
            request = structs.replace(self.request(), model=name, owner=name)
            try:
                found = await router.candidates(request)
            except GatewayError:
                continue
            if found is not None:
                _names(found)

    async def test_no_model_may_be_able_to_answer(self, router: Router) -> None:
        try:
            found = await router.candidates(structs.replace(self.request(), models=[]))
        except GatewayError:
            return
        if found is not None:
            _names(found)

    async def test_requests_at_once_do_not_mix(self, router: Router) -> None:
        requests = [
            structs.replace(self.request(), models=self.request().models[: 1 + number % 2])
            for number in range(50)
        ]
        every = await asyncio.gather(*map(router.candidates, requests))
        for found in every:
            if found is not None:
                _names(found)

    async def test_routing_does_not_block_the_event_loop(self, router: Router) -> None:
        async with loop_stays_free("the router"):
            await router.candidates(self.request())


def _names(found: Sequence[str]) -> None:
    assert not isinstance(found, str), f"{found!r} is one name, not a sequence of names"
    assert all(isinstance(name, str) and name for name in found), f"{found!r} are not names"
