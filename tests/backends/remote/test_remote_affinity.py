"""Conversations find their caches again: cached tokens, as against chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[list[Any]]]
CONVERSATIONS, TURNS, REPLICAS = 40, 6, 8


async def cached_share(stubs: Start, vocabulary: str, choice: Any) -> tuple[float, list[int]]:
    """The share of prompt tokens that came from a cache, and the requests of each replica."""
    replicas = await stubs(REPLICAS)
    config = RemoteConfig(
        urls=[stub.url for stub in replicas], tokenizer=vocabulary, choice=choice, affinity_block=16
    )
    rng = random.Random(7)
    system = [rng.randrange(256) for _ in range(64)]
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:

        async def conversation(number: int) -> None:
            own = random.Random(number)
            tokens = [*system]
            for turn in range(TURNS):
                tokens += [own.randrange(256) for _ in range(own.randrange(50, 150))]
                asked = EngineRequest(
                    request_id=f"c{number}-{turn}",
                    prompt=TokensPrompt(token_ids=[*tokens]),
                    sampling=Sampling(max_tokens=8),
                )
                async for output in engine.generate(asked):
                    tokens += output.token_ids
                await asyncio.sleep(own.random() * 0.01)

        await asyncio.gather(*map(conversation, range(CONVERSATIONS)))
        rows = engine.describe()
    cached = sum(row["cached_tokens"] for row in rows)
    return cached / sum(row["prompt_tokens"] for row in rows), [row["requests"] for row in rows]


async def test_prefix_affinity_finds_caches_that_chance_misses(
    stubs: Start, vocabulary: str
) -> None:
    by_affinity, spread = await cached_share(stubs, vocabulary, "affinity")
    by_chance, _ = await cached_share(stubs, vocabulary, "random")
    print(f"\ncached: affinity {by_affinity:.0%}, random {by_chance:.0%}; requests {spread}")
    assert by_affinity > 0.6
    assert by_affinity > 1.5 * by_chance
    # No replica is left out, and none does more than three times its share.
    assert min(spread) > 0
    assert max(spread) < 3 * CONVERSATIONS * TURNS / REPLICAS


async def test_prompts_of_different_salts_share_nothing(stubs: Start, vocabulary: str) -> None:
    """The same prompt under another salt is no reason to go to the same replica."""
    replicas = await stubs(2)
    config = RemoteConfig(
        urls=[stub.url for stub in replicas], tokenizer=vocabulary, affinity_block=16
    )
    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:

        async def ask(number: int, salt: str | None) -> None:
            asked = EngineRequest(
                request_id=f"r{number}",
                prompt=TokensPrompt(token_ids=[1] * 64),
                sampling=Sampling(max_tokens=1),
                cache_salt=salt,
            )
            _ = [output async for output in engine.generate(asked)]

        for number in range(30):
            await ask(number, "mine")
        assert sorted(len(stub.started) for stub in replicas) == [0, 30]
        assert {body["cache_salt"] for stub in replicas for body in stub.bodies} == {"mine"}
        for number in range(30, 60):
            await ask(number, f"other-{number}")
        assert min(len(stub.started) for stub in replicas) > 3
