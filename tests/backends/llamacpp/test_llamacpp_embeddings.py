"""Embeddings by llama.cpp, of the tiny model that is shipped with it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError, EngineUnavailable, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EmbeddingRequest, Engine, EngineRequest, TokensPrompt
from gateway_doctor.checks.embedding_checks import cosine
from gateway_llamacpp import LlamaCppConfig, open_llamacpp
from gateway_llamacpp.embedding import LlamaCppEmbedder
from gateway_llamacpp.loading import pooling_of
from gateway_testing import EmbeddingContract
from tests.waiting import wait_until_async

CONTEXT = EngineContext(name="tiny", path=None)


class TestMeanPooling(EmbeddingContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[LlamaCppEmbedder]:
        config = LlamaCppConfig(
            n_parallel=4, n_ctx=512, task="embed", pooling="mean", matryoshka=True
        )
        async with open_llamacpp(config, CONTEXT) as opened:
            assert isinstance(opened, LlamaCppEmbedder)
            yield opened


class TestClsPooling(EmbeddingContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[LlamaCppEmbedder]:
        config = LlamaCppConfig(n_parallel=4, n_ctx=512, task="embed", pooling="cls")
        async with open_llamacpp(config, CONTEXT) as opened:
            assert isinstance(opened, LlamaCppEmbedder)
            yield opened

    @pytest.mark.skip(reason="the first token of a causal model knows nothing of the text")
    async def test_a_text_has_one_vector_wherever_it_stands(self, engine: Engine) -> None: ...


class TestLastPooling(EmbeddingContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[LlamaCppEmbedder]:
        config = LlamaCppConfig(n_parallel=2, n_ctx=512, n_batch=64, n_ubatch=64, task="embed")
        async with open_llamacpp(config, CONTEXT) as opened:
            assert isinstance(opened, LlamaCppEmbedder)
            yield opened


@pytest.fixture
async def engine(anyio_backend: str) -> AsyncIterator[LlamaCppEmbedder]:
    config = LlamaCppConfig(n_parallel=2, n_ctx=512, task="embed", pooling="mean")
    async with open_llamacpp(config, CONTEXT) as opened:
        assert isinstance(opened, LlamaCppEmbedder)
        yield opened


def ask(*inputs: list[int], priority: int = 0) -> EmbeddingRequest:
    return EmbeddingRequest(request_id="1", inputs=inputs, priority=priority)


@pytest.mark.anyio
async def test_it_only_embeds(engine: LlamaCppEmbedder) -> None:
    assert engine.capabilities == {"embeddings"}
    request = EngineRequest(request_id="1", prompt=TokensPrompt(token_ids=[1]))
    with pytest.raises(Unsupported, match="only embeds"):
        await engine.check(request)
    with pytest.raises(Unsupported, match="only embeds"):
        await anext(engine.generate(request))


@pytest.mark.anyio
async def test_the_longest_input_is_as_long_as_it_says(engine: LlamaCppEmbedder) -> None:
    most = engine.embedding.max_input_tokens
    assert most == engine.info.max_model_len == 512
    result = await engine.embed(ask([5] * most))
    assert result.prompt_tokens == most
    assert len(result.vectors[0]) == engine.embedding.dimensions == 160
    assert math.hypot(*result.vectors[0]) == pytest.approx(1, abs=1e-3)


@pytest.mark.anyio
async def test_a_text_that_is_far_too_long_is_not_tokenized(
    engine: LlamaCppEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(engine.tokenizer.encode("a " * 50_000)) > 512
    monkeypatch.setattr(engine.tokenizer, "request", None)
    with pytest.raises(InvalidRequest, match="has more") as refused:
        engine.tokenizer.encode("a" * 1_000_001)
    assert refused.value.code == "context_length_exceeded"


@pytest.mark.anyio
async def test_an_aborted_request_gives_its_slots_back(engine: LlamaCppEmbedder) -> None:
    task = asyncio.create_task(engine.embed(ask(*[[5] * 500] * 50)))
    await wait_until_async(lambda: engine._slots.free == 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: engine._slots.free == 2)
    assert len((await engine.embed(ask([5, 6]))).vectors) == 1


@pytest.mark.anyio
async def test_closing_ends_what_waits() -> None:
    config = LlamaCppConfig(n_parallel=1, n_ctx=512, task="embed")
    async with open_llamacpp(config, CONTEXT) as opened:
        assert isinstance(opened, LlamaCppEmbedder)
        tasks = [asyncio.create_task(opened.embed(ask([5] * 500, [6] * 500))) for _ in range(3)]
        await wait_until_async(lambda: opened._slots.free == 0)
        await opened.close()
        for failure in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(failure, EngineUnavailable)
        with pytest.raises(EngineUnavailable):
            await opened.health()


@pytest.mark.anyio
async def test_how_vectors_are_pooled_matters(engine: LlamaCppEmbedder) -> None:
    config = LlamaCppConfig(n_parallel=1, n_ctx=512, task="embed", pooling="last")
    text = engine.tokenizer.encode("What is the capital of France?")
    async with open_llamacpp(config, CONTEXT) as other:
        assert isinstance(other, LlamaCppEmbedder)
        [last] = (await other.embed(ask(text))).vectors
    [mean] = (await engine.embed(ask(text))).vectors
    assert cosine(last, mean) < 0.99


@pytest.mark.parametrize(
    ("config", "said", "pooling"),
    [
        (LlamaCppConfig(), None, None),
        (LlamaCppConfig(), 0, None),
        (LlamaCppConfig(), 1, "mean"),
        (LlamaCppConfig(), 2, "cls"),
        (LlamaCppConfig(), 3, "last"),
        (LlamaCppConfig(task="generate"), 3, None),
        (LlamaCppConfig(task="embed"), None, "last"),
        (LlamaCppConfig(pooling="mean"), 3, "mean"),
        (LlamaCppConfig(task="embed", pooling="cls"), 4, "cls"),
        (LlamaCppConfig(pooling="cls"), 4, "cls"),
        (LlamaCppConfig(), 4, "rank"),
        (LlamaCppConfig(task="rerank"), 4, "rank"),
    ],
)
def test_the_file_says_whether_a_model_embeds(
    config: LlamaCppConfig, said: int | None, pooling: str | None
) -> None:
    metadata = {"general.architecture": "bert"}
    if said is not None:
        metadata |= {"bert.pooling_type": said}  # type: ignore[dict-item]
    assert pooling_of(config, metadata, Path("model.gguf")) == pooling


@pytest.mark.parametrize(
    ("config", "said", "sentence"),
    [
        (LlamaCppConfig(pooling="mean"), 0, 'set task = "embed"'),
        (LlamaCppConfig(matryoshka=True), 0, 'set task = "embed"'),
        (LlamaCppConfig(task="embed"), 4, "ranks"),
        (LlamaCppConfig(task="rerank"), 1, "pooling type 4"),
        (LlamaCppConfig(task="rerank", pooling="cls"), 4, "leave them out"),
        (LlamaCppConfig(lora_modules={"a": "a.gguf"}), 4, "lora_modules"),
        (LlamaCppConfig(lora_modules={"a": "a.gguf"}), 1, "lora_modules"),
    ],
)
def test_what_cannot_be_is_a_sentence(config: LlamaCppConfig, said: int, sentence: str) -> None:
    metadata = {"general.architecture": "bert", "bert.pooling_type": said}
    with pytest.raises(ConfigurationError, match=sentence):
        pooling_of(config, metadata, Path("model.gguf"))
