"""The engines' contract, with an upstream by either API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_doctor.checks import engine_checks_running as running
from gateway_openai import OpenAIConfig, open_openai
from gateway_openai.config import Api
from gateway_testing import EngineContract
from gateway_testing.server import RunningGateway, run_gateway


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("upstream")
    models = {
        "said": {"engine": "scripted"},
        "slow": {"engine": "scripted", "scripted": {"delay_ms": 10}},
    }
    with run_gateway({"models": models}, folder) as serving:
        yield serving


class TestByChatCompletions(EngineContract):
    api: ClassVar[Api] = "chat"

    @pytest.fixture
    async def engine(self, upstream: RunningGateway) -> AsyncIterator[Engine]:
        async with self.open(upstream, "said") as engine:
            yield engine

    @asynccontextmanager
    async def open(self, upstream: RunningGateway, model: str) -> AsyncIterator[Engine]:
        config = OpenAIConfig(
            base_url=upstream.base_url,
            model=model,
            api=self.api,
            extensions=("include_stop_str_in_output", "seed", "stop"),
        )
        async with open_openai(config, EngineContext(name="m", path=None)) as engine:
            yield engine

    async def test_a_long_answer_comes_in_several_outputs(self, upstream: RunningGateway) -> None:
        """What the upstream sends faster than it is read is one output. So it pauses here."""
        async with self.open(upstream, "slow") as engine:
            await self.holds(engine, running.streams)


class TestByResponses(TestByChatCompletions):
    api = "responses"
