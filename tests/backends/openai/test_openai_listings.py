"""Upstreams that do not list their models, and many models of one upstream."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from gateway.base.deltas import TextDelta
from gateway.base.errors import ConfigurationError, EngineUnavailable
from gateway.plugins.protocols import ToolDefinition, Turn
from gateway.wire.item_decoding import decode_items
from gateway_openai.listings import Listing, SharedListings
from gateway_remote.failures import ReplicaFailure
from tests.backends.openai.sent_bodies import sent_body
from tests.clock import Clock
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", [400, 403, 404, 405, 429, 500, 501, 200])
@pytest.mark.parametrize("later", [True, False], ids=["later", "from the start"])
async def test_an_upstream_that_does_not_list_its_models_is_used(
    stub: Any, asker: Any, status: int, *, later: bool
) -> None:
    refusal = web.Response(status=status, body=b"<html>no</html>")
    if not later:
        stub.listing = refusal
    stub.says(stub.chunk(content="Yes"), stub.chunk("stop"), stub.usage, stub.done)
    async with asker.open(stub, health_interval=0.05, health_failures=1) as engine:
        stub.listing = refusal
        before = stub.listed
        await wait_until_async(lambda: stub.listed >= before + 3)
        await engine.health()
        assert await asker.deltas() == [TextDelta("Yes")]


@pytest.mark.parametrize("status", [401, 502, 503, 504])
async def test_an_upstream_that_cannot_be_reached_through_its_proxy_is_not(
    stub: Any, asker: Any, status: int
) -> None:
    async with asker.open(stub, health_interval=0.05, health_failures=1) as engine:
        stub.listing = web.Response(status=status)
        await wait_until_async(lambda: all(each.down for each in engine._pool.replicas))
        with pytest.raises(EngineUnavailable):
            await engine.health()
        stub.listing = None
        await wait_until_async(lambda: not any(each.down for each in engine._pool.replicas))


async def test_a_path_of_the_operator_means_what_it_answers(stub: Any, asker: Any) -> None:
    config = {"health_path": "/healthy", "health_interval": 0.05, "health_failures": 1}
    async with asker.open(stub, **config) as engine:
        with pytest.raises(EngineUnavailable):
            await engine.health()  # the stub has no such path: 405


async def test_only_a_refused_key_stops_the_start(stub: Any, asker: Any) -> None:
    stub.listing = web.Response(status=401)
    with pytest.raises(ConfigurationError, match="check api_key"):
        async with asker.open(stub):
            pass


async def test_models_of_one_upstream_share_its_listing(stub: Any, asker: Any) -> None:
    async with AsyncExitStack() as stack:
        opening = [
            stack.enter_async_context(asker.open(stub, health_interval=30)) for _ in range(40)
        ]
        engines = [await each for each in opening]
        assert all(engine.info.max_model_len == 4096 for engine in engines)
        assert stub.listed == 1
        # Another key may see other models.
        await stack.enter_async_context(asker.open(stub, health_interval=30, api_key="other"))
        assert stub.listed == 2


async def test_a_listing_is_asked_once_in_an_interval_and_a_failure_is_not_kept() -> None:
    clock, asked = Clock(), 0
    listings = SharedListings(clock)
    answers: list[Listing | ReplicaFailure] = []

    async def ask() -> Listing:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        match answers[-1]:
            case ReplicaFailure() as failure:
                raise failure
            case found:
                return found

    async def get() -> int:
        return (await listings.get("upstream", ask, max_age=9.0)).status

    answers.append(Listing(200))
    assert await asyncio.gather(*(get() for _ in range(20))) == [200] * 20
    assert asked == 1
    answers.append(ReplicaFailure("it hung up"))
    clock.now += 8
    assert await get() == 200
    clock.now += 2
    for _ in range(3):
        with pytest.raises(ReplicaFailure, match="hung up"):
            await get()
    assert asked == 2
    answers.append(Listing(404))
    clock.now += 2
    assert (await get(), asked) == (404, 3)


async def test_who_stops_asking_takes_the_answer_from_nobody() -> None:
    listings, go = SharedListings(Clock()), asyncio.Event()

    async def ask() -> Listing:
        await go.wait()
        return Listing(200)

    tasks = [asyncio.create_task(listings.get("upstream", ask, max_age=9.0)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    go.set()
    assert [(await task).status for task in tasks[1:]] == [200, 200]


CARDS = [
    ({"id": "m"}, True),
    ({"id": "m", "owned_by": "system"}, True),
    ({"id": "m", "owned_by": ["vllm"]}, True),
    ({"id": "m", "context_length": 4096}, True),
    ({"id": "m", "owned_by": "vllm"}, False),
    ({"id": "m", "owned_by": "litegate"}, False),
    ({"id": "m", "max_model_len": 4096}, False),
]


@pytest.mark.parametrize(("card", "told"), CARDS)
@pytest.mark.parametrize("asked", [None, True, False], ids=["by the list", "told", "not told"])
async def test_strict_is_not_told_to_upstreams_whose_list_is_that_of_a_self_hosted_server(
    stub: Any, asker: Any, card: dict[str, Any], *, told: bool, asked: bool | None
) -> None:
    """Their chat templates may print it."""
    stub.listing = web.json_response({"data": [card]})
    turn = Turn(items=decode_items("Hi"), tools=[ToolDefinition(name="f")])
    config = (
        {"api": "responses"} if asked is None else {"api": "responses", "strict_default": asked}
    )
    sent = await sent_body(stub, asker, turn, config)
    assert ("strict" in sent["tools"][0]) == (told if asked is None else asked)


async def test_a_list_that_comes_later_says_it_too(stub: Any, asker: Any) -> None:
    """The gateway may start before its upstream."""
    stub.listing = web.Response(status=404)
    async with asker.open(stub, api="responses", health_interval=0.05) as engine:
        assert not engine._language._listing.self_hosted
        stub.listing = web.json_response({"data": [{"id": "m", "owned_by": "vllm"}]})
        await wait_until_async(lambda: engine._language._listing.self_hosted)
