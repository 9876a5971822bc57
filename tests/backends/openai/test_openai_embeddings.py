"""Embeddings of an upstream: a gateway behind a gateway, and stubs that refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import BadRequestError, RateLimitError

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_openai import OpenAIConfig, open_openai
from gateway_testing import EmbeddingContract
from gateway_testing.server import RunningGateway, run_gateway

SCRIPTED: dict[str, Any] = {
    "engine": "scripted",
    "max_model_len": 100,
    "scripted": {"rules": [{"when": "too much", "error": {"status": 429, "message": "Slow."}}]},
}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway({"models": {"said": SCRIPTED}}, tmp_path_factory.mktemp("below")) as below:
        yield below


@pytest.fixture(scope="module")
def front(
    upstream: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    def behind(**more: Any) -> dict[str, Any]:
        told = {"base_url": upstream.base_url, "model": "said", **more}
        return {"engine": "openai", "openai": told}

    models = {
        "direct": SCRIPTED,
        "vectors": behind(task="embed"),
        "all": behind(task="both"),
        "words": behind(),
        "ordered": behind(task="embed", extensions=["priority"]),
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest.fixture
def client(front: RunningGateway) -> Iterator[Any]:
    with front.client() as client:
        yield client


class TestUpstreamEmbeds(EmbeddingContract):
    @pytest.fixture
    async def engine(self, upstream: RunningGateway) -> AsyncIterator[Engine]:
        config = OpenAIConfig(base_url=upstream.base_url, model="said", task="embed")
        async with open_openai(config, EngineContext(name="m", path=None)) as engine:
            assert engine.capabilities == {"embeddings"}
            yield engine


@pytest.mark.parametrize("name", ["vectors", "all"])
@pytest.mark.parametrize("given", ["Hello there", ["a", "b b"], [5, 6], [[5], [6, 7]]])
@pytest.mark.parametrize("more", [{}, {"dimensions": 8}, {"encoding_format": "float"}])
def test_vectors_are_those_of_the_upstream(
    client: Any, name: str, given: Any, more: dict[str, Any]
) -> None:
    direct = client.embeddings.create(model="direct", input=given, **more)
    behind = client.embeddings.create(model=name, input=given, user="somebody", **more)
    assert behind.data == direct.data
    assert behind.usage == direct.usage
    assert behind.model == name


def test_only_what_embeds_embeds(client: Any) -> None:
    with pytest.raises(BadRequestError, match="direct, vectors, all"):
        client.embeddings.create(model="words", input="Hello")
    with pytest.raises(BadRequestError, match="only embeds"):
        client.responses.create(model="vectors", input="Hello")
    assert client.responses.create(model="all", input="Hello").output_text == "Hello"


def test_a_refusal_is_in_the_upstreams_words(client: Any) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.embeddings.create(model="vectors", input=["x", "word " * 200])
    assert refused.value.param == "input"
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(BadRequestError) as refused:
        client.embeddings.create(model="vectors", input="x", dimensions=65)
    assert refused.value.param == "dimensions"
    with pytest.raises(RateLimitError):
        client.embeddings.create(model="vectors", input="too much")


def test_a_priority_is_sent_to_an_upstream_that_takes_one(
    client: Any, front: RunningGateway
) -> None:
    engines = {name: front.services.models[name].engine for name in ("ordered", "vectors")}
    assert engines["ordered"].last_priority == 2**31 - 1
    assert engines["vectors"].last_priority is None
    assert client.embeddings.create(model="ordered", input="x", extra_body={"priority": 5}).data


def test_what_is_the_upstream_s_own_business_is_refused(client: Any) -> None:
    for name, value in (("priority", 5), ("add_special_tokens", True)):
        with pytest.raises(BadRequestError) as refused:
            client.embeddings.create(model="vectors", input="x", extra_body={name: value})
        assert refused.value.param == name
