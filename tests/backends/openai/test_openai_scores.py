"""Reranking by an upstream: a gateway behind a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_openai import OpenAIConfig, open_openai
from gateway_testing import ScoreContract
from gateway_testing.server import RunningGateway, run_gateway

RULES = [{"when": "too much", "error": {"status": 429, "message": "Slow."}}]
SCRIPTED: dict[str, Any] = {
    "engine": "scripted",
    "max_model_len": 100,
    "scripted": {"task": "rerank", "rules": RULES},
}
BODY = {"query": "the cat", "documents": ["money", "a cat", "the cat"], "top_n": 2}


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway({"models": {"said": SCRIPTED}}, tmp_path_factory.mktemp("below")) as below:
        yield below


@pytest.fixture(scope="module")
def front(
    upstream: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    told = {"base_url": upstream.base_url, "model": "said", "task": "rerank"}
    models = {"direct": SCRIPTED, "behind": {"engine": "openai", "openai": told}}
    with (
        run_gateway({"models": models}, tmp_path_factory.mktemp("front")) as front,
        httpx.Client(base_url=front.base_url, timeout=60) as client,
    ):
        yield client


class TestUpstreamReranks(ScoreContract):
    @pytest.fixture
    async def engine(self, upstream: RunningGateway) -> AsyncIterator[Engine]:
        config = OpenAIConfig(base_url=upstream.base_url, model="said", task="rerank")
        async with open_openai(config, EngineContext(name="m", path=None)) as engine:
            assert engine.capabilities == {"rerank"}
            yield engine


def test_scores_are_those_of_the_upstream(front: httpx.Client) -> None:
    direct = front.post("/rerank", json={"model": "direct", **BODY}).json()
    behind = front.post("/rerank", json={"model": "behind", "user": "somebody", **BODY}).json()
    assert behind["results"] == direct["results"]
    assert len(behind["results"]) == 2
    assert behind["usage"] == direct["usage"]
    assert behind["model"] == "behind"


def test_a_refusal_is_in_the_upstreams_words(front: httpx.Client) -> None:
    def asked(**changes: Any) -> httpx.Response:
        return front.post("/rerank", json={"model": "behind", **BODY, **changes})

    error = asked(documents=["x", "word " * 200]).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "documents"
    assert asked(documents=["too much"]).status_code == 429
    assert asked(priority=5).json()["error"]["param"] == "priority"
