"""Eight replicas that die, hang, slow down, talk nonsense and come back, under load."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from gateway.base.errors import EngineError, EngineUnavailable
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from tests.waiting import wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

Start = Callable[..., Awaitable[list[Any]]]
FAULTS = (
    "die", "hang", "error", "garbage", "nonsense", "busy", "break", "stall", "mumble", "slow", "sick"
)  # fmt: skip
OWN = 400
"""What the tokens of two neighbouring replicas are apart, so that a stream shows where it comes from."""
QUICK: dict[str, Any] = {
    "connect_timeout": 30.0,
    "health_interval": 0.1,
    "health_timeout": 30.0,
    "breaker_seconds": 0.2,
    "breaker_max_seconds": 0.5,
    "attempts": 8,
}
"""Quick to look again. What a slow machine could be taken for an illness for has the time that it needs."""
HASTY: dict[str, Any] = QUICK | {
    "connect_timeout": 0.5,
    "first_token_timeout": 1.5,
    "stall_timeout": 0.6,
    "health_timeout": 0.3,
    "attempts": 30,
}
"""For replicas that hang: those that the machine makes slow are taken for ill too, and their requests go elsewhere."""


def request(number: int, prompt: list[int], tokens: int) -> EngineRequest:
    return EngineRequest(
        request_id=f"r{number}",
        prompt=TokensPrompt(token_ids=prompt),
        sampling=Sampling(max_tokens=tokens),
    )


def statuses(engine: Any) -> list[str]:
    return [row["status"] for row in engine.describe()]


async def clean(engine: Any, stubs: list[Any]) -> None:
    """Nothing is left over: no place taken, no stream watched, nothing running upstream."""
    for replica in engine._pool.replicas:
        assert replica.running == 0
        assert not replica.waiting_for_first_token
    assert len(engine._dispatcher._client._watch) == 0
    await wait_until_async(lambda: not any(stub.active for stub in stubs if stub.mode != "hang"))


@pytest.mark.parametrize("seed", range(4))
async def test_no_request_is_lost_doubled_or_stuck_whatever_replicas_do(
    stubs: Start, vocabulary: str, seed: int
) -> None:
    """A request fails only if its stream had begun; what it gave until then is right, and one replica's alone."""
    rng = random.Random(seed)
    replicas = await stubs(8)
    for number, stub in enumerate(replicas):
        stub.delay = 0.002
        stub.offset = number * OWN
    config = RemoteConfig(
        urls=[stub.url for stub in replicas], tokenizer=vocabulary, affinity_block=16, **HASTY
    )
    over = asyncio.Event()

    async def mischief() -> None:
        """Up to five of the eight are ill at any time."""
        ill: list[tuple[Any, str]] = []
        while not over.is_set():
            if len(ill) < 5:
                stub = rng.choice(
                    [each for each in replicas if each not in [one for one, _ in ill]]
                )
                fault = rng.choice(FAULTS)
                if fault == "die":
                    await stub.stop()
                elif fault == "slow":
                    stub.delay = 0.05
                elif fault == "sick":
                    stub.healthy = False  # it answers, and says that it is not well
                else:
                    stub.mode, stub.break_after = fault, rng.randrange(8)
                ill.append((stub, fault))
            await asyncio.sleep(rng.uniform(0.0, 0.05))
            if len(ill) == 5 or rng.random() < 0.3:
                stub, fault = ill.pop(rng.randrange(len(ill)))
                stub.mode, stub.delay, stub.healthy = "ok", 0.002, True
                if fault == "die":
                    await stub.start()
            await asyncio.sleep(rng.uniform(0.0, 0.1))
        for stub, fault in ill:
            if fault == "die":
                await stub.start()

    outcomes: dict[int, str] = {}

    async def client(engine: Any, number: int) -> None:
        prompt = [rng.randrange(256) for _ in range(rng.randrange(1, 100))]
        tokens = rng.randrange(1, 24)
        given: list[int] = []
        finish = None
        outcome = "whole"
        leave_after = rng.randrange(1, 8) if rng.random() < 0.1 else None
        try:
            async with aclosing(engine.generate(request(number, prompt, tokens))) as outputs:
                async for output in outputs:
                    assert finish is None
                    given += output.token_ids
                    finish = output.finish_reason
                    if leave_after is not None and len(given) >= leave_after:
                        outcome = "left"
                        break
        except EngineError:
            outcome = "broken"
            assert given, "a request failed although its stream had not begun"
        offset = given[0] - prompt[-1] - 1 if given else 0
        assert offset % OWN == 0
        assert given == [offset + prompt[-1] + place + 1 for place in range(len(given))]
        if outcome == "whole":
            assert finish == "length"
            assert len(given) == tokens
        outcomes[number] = outcome

    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        trouble = asyncio.create_task(mischief())
        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            for number in range(240):
                group.create_task(client(engine, number))
                await asyncio.sleep(0.008)
        over.set()
        await trouble
        await clean(engine, replicas)
        served = sum(row["served"] for row in engine.describe())
        assert served >= sum(outcome == "whole" for outcome in outcomes.values())
    assert len(outcomes) == 240
    assert sum(outcome == "whole" for outcome in outcomes.values()) > 120


async def test_a_dead_replica_costs_no_client_an_error(stubs: Start, vocabulary: str) -> None:
    """Seven of eight die at once, unnoticed; every request is served by the eighth."""
    replicas = await stubs(8)
    config = RemoteConfig(
        urls=[stub.url for stub in replicas],
        tokenizer=vocabulary,
        **QUICK | {"health_interval": 60.0},
    )
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        for stub in replicas[:7]:
            await stub.stop()

        async def one(number: int) -> int:
            outputs = [each async for each in engine.generate(request(number, [number], 4))]
            return sum(len(output.token_ids) for output in outputs)

        async with asyncio.timeout(60):
            assert await asyncio.gather(*map(one, range(50))) == [4] * 50
        assert len(replicas[7].completed) == 50
        await clean(engine, replicas)


async def test_requests_that_wait_on_a_hung_replica_move_on_when_it_is_ejected(
    stubs: Start, vocabulary: str
) -> None:
    """Long before the first token's own time limit."""
    hung, well = await stubs(2)
    config = RemoteConfig(
        urls=[hung.url, well.url],
        tokenizer=vocabulary,
        **QUICK | {"first_token_timeout": 600.0, "health_interval": 0.2, "health_timeout": 0.3},
    )
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        hung.mode = "hang"
        async with asyncio.timeout(60):
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(anext_of(engine.generate(request(number, [1], 1))))
        assert len(hung.started) > 0
        rows = {row["replica"]: row for row in engine.describe()}
        assert rows[hung.url]["status"] == "down"
        await clean(engine, [well])


async def anext_of(outputs: Any) -> None:
    async with aclosing(outputs) as stream:
        await anext(stream)


async def test_a_replica_that_dies_and_returns_is_used_again(stubs: Start, vocabulary: str) -> None:
    one, two = await stubs(2)
    config = RemoteConfig(urls=[one.url, two.url], tokenizer=vocabulary, **QUICK)
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        await one.stop()
        for number in range(20):
            assert [o async for o in engine.generate(request(number, [number], 2))]
        await wait_until_async(lambda: statuses(engine) == ["down", "up"])
        await one.start()
        before = len(one.completed)
        await wait_until_async(lambda: statuses(engine)[0] not in ("down", "open"))
        for number in range(20):
            assert [o async for o in engine.generate(request(number, [number], 2))]
        assert len(one.completed) > before


async def test_where_nothing_lives_the_client_is_told_at_once_and_why(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    config = RemoteConfig(
        urls=[stub.url], tokenizer=vocabulary, **QUICK | {"wait_for_replica": 0.3}
    )
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        await stub.stop()
        async with asyncio.timeout(60):
            with pytest.raises(EngineUnavailable):
                await anext_of(engine.generate(request(1, [1], 1)))
            await wait_until_async(lambda: statuses(engine) == ["down"])
            with pytest.raises(EngineUnavailable, match=stub.url):
                await engine.check(request(1, [1], 1))
            with pytest.raises(EngineUnavailable):
                await engine.health()


async def test_a_request_waits_out_a_restart_of_the_only_replica(
    stubs: Start, vocabulary: str
) -> None:
    (stub,) = await stubs(1)
    config = RemoteConfig(urls=[stub.url], tokenizer=vocabulary, wait_for_replica=60.0, **QUICK)
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        await stub.stop()
        waiting = asyncio.create_task(anext_of(engine.generate(request(1, [1], 1))))
        await asyncio.sleep(0.6)
        await stub.start()
        async with asyncio.timeout(60):
            await waiting


async def test_a_stream_that_has_begun_is_never_begun_again(stubs: Start, vocabulary: str) -> None:
    one, two = await stubs(2)
    for stub in (one, two):
        stub.mode, stub.break_after = "break", 3
        stub.delay = 0.01
    config = RemoteConfig(urls=[one.url, two.url], tokenizer=vocabulary, **QUICK)
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        given: list[int] = []
        with pytest.raises(EngineError, match="in the middle"):
            async for output in engine.generate(request(1, [10], 9)):
                given += output.token_ids
        assert given == [11, 12, 13]
        assert len(one.started) + len(two.started) == 1


async def test_hedging_asks_a_second_replica_and_uses_the_quicker(
    stubs: Start, vocabulary: str
) -> None:
    slow, quick = await stubs(2)
    config = RemoteConfig(
        urls=[slow.url, quick.url],
        tokenizer=vocabulary,
        hedge_after=0.1,
        **QUICK | {"health_interval": 60.0},
    )
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        slow.mode = "hang"
        asked = 0
        async with asyncio.timeout(60):
            while asked < 12 or not slow.started:  # the first to be asked is one of them at random
                outputs = [o async for o in engine.generate(request(asked, [asked % 99], 2))]
                tokens = [token for output in outputs for token in output.token_ids]
                assert tokens == [asked % 99 + 1, asked % 99 + 2]
                asked += 1
        hedges = {sample.name: sample.value for sample in engine.metrics() if not sample.labels}
        # On a slow machine, a second one is asked of which the first answers before it has read anything.
        assert len(slow.started) <= hedges["gateway_remote_hedges"] <= asked
        await clean(engine, [quick])
