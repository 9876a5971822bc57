"""Scores by llama.cpp, of the tiny model with a head of random weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.base.errors import EngineUnavailable, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine, EngineRequest, ScoreRequest, TokensPrompt
from gateway_llamacpp import LlamaCppConfig, open_llamacpp
from gateway_llamacpp.reranking import LlamaCppReranker
from gateway_testing import ScoreContract
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


class TestLlamaCppReranks(ScoreContract):
    @pytest.fixture(scope="module")
    async def engine(self, tiny_reranker: Path, anyio_backend: str) -> AsyncIterator[Engine]:
        context = EngineContext(name="tiny", path=str(tiny_reranker))
        async with open_llamacpp(LlamaCppConfig(n_parallel=4, n_ctx=256), context) as opened:
            yield opened


@pytest.fixture
async def engine(tiny_reranker: Path, anyio_backend: str) -> AsyncIterator[LlamaCppReranker]:
    context = EngineContext(name="tiny", path=str(tiny_reranker))
    async with open_llamacpp(LlamaCppConfig(n_parallel=2, n_ctx=512), context) as opened:
        assert isinstance(opened, LlamaCppReranker)
        yield opened


def ask(*pairs: tuple[str, str]) -> ScoreRequest:
    return ScoreRequest(request_id="1", pairs=pairs)


async def test_it_only_reranks(engine: LlamaCppReranker) -> None:
    assert engine.capabilities == {"rerank"}
    assert engine.info.max_model_len == 512
    with pytest.raises(Unsupported, match="only reranks"):
        await engine.check(EngineRequest(request_id="1", prompt=TokensPrompt(token_ids=[1])))


async def test_a_pair_without_tokens_does_not_end_the_process(engine: LlamaCppReranker) -> None:
    with pytest.raises(InvalidRequest, match="no token") as refused:
        await engine.score(ask(("a", "b"), ("", "")))
    assert refused.value.param == "pairs[1]"
    assert len((await engine.score(ask(("a", "b")))).scores) == 1


@pytest.mark.parametrize("pair", [("a", "b " * 600), ("a " * 600, "b"), ("a", "b" * 1_000_000)])
async def test_no_pair_is_longer_than_a_slots_share(
    engine: LlamaCppReranker, pair: tuple[str, str]
) -> None:
    """llama.cpp would compute it: all slots share one cache here."""
    with pytest.raises(InvalidRequest) as refused:
        await engine.score(ask(("a", "b"), pair))
    assert (refused.value.param, refused.value.code) == ("pairs[1]", "context_length_exceeded")


async def test_an_aborted_request_gives_its_slots_back(engine: LlamaCppReranker) -> None:
    task = asyncio.create_task(engine.score(ask(*[("a", "word " * 90)] * 50)))
    await wait_until_async(lambda: engine._slots.free == 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: engine._slots.free == 2)
    assert len((await engine.score(ask(("a", "b")))).scores) == 1


async def test_closing_ends_what_waits(engine: LlamaCppReranker) -> None:
    pairs = [("a", "word " * 90)] * 8
    tasks = [asyncio.create_task(engine.score(ask(*pairs))) for _ in range(3)]
    await wait_until_async(lambda: engine._slots.free == 0)
    await engine.close()
    for failure in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(failure, EngineUnavailable)
    with pytest.raises(EngineUnavailable):
        await engine.health()
