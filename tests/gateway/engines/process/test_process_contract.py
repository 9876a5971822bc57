"""Engines in processes of their own keep the contracts of engines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.engines.process.client import ProcessEngine
from gateway_testing import EmbeddingContract, EngineContract, ScoreContract
from tests.gateway.engines.process.conftest import opened


class TestScripted(EngineContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[ProcessEngine]:
        async with opened("scripted", max_model_len=4096) as made:
            yield made


class TestScriptedThatSees(EngineContract):
    image_text = "<image>"

    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[ProcessEngine]:
        settings = {"media": ["image"], "special_tokens": ["<image>"], "placeholders": "template"}
        async with opened("scripted", max_model_len=4096, **settings) as made:
            yield made


class TestScriptedEmbeddings(EmbeddingContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[ProcessEngine]:
        async with opened("scripted", max_model_len=4096, task="embed") as made:
            yield made


class TestScriptedScores(ScoreContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[ProcessEngine]:
        async with opened("scripted", max_model_len=4096, task="rerank") as made:
            yield made


class TestLlamaCpp(EngineContract):
    @pytest.fixture(scope="module")
    async def engine(self, anyio_backend: str) -> AsyncIterator[ProcessEngine]:
        async with opened("llamacpp", n_parallel=4, n_ctx=2048) as made:
            yield made
