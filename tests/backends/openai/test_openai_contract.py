"""The engines' contract, with an upstream by either API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.hookspecs import EngineContext
from gateway.protocols import Engine
from gateway.testing import EngineContract
from gateway.testing.server import RunningGateway, run_gateway
from gateway_openai import OpenAIConfig, open_openai
from gateway_openai.config import Api


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("upstream")
    with run_gateway({"models": {"said": {"engine": "scripted"}}}, folder) as running:
        yield running


class TestByChatCompletions(EngineContract):
    api: ClassVar[Api] = "chat"

    @pytest.fixture
    async def engine(self, upstream: RunningGateway) -> AsyncIterator[Engine]:
        config = OpenAIConfig(
            base_url=upstream.base_url,
            model="said",
            api=self.api,
            extensions=("include_stop_str_in_output", "seed", "stop"),
        )
        async with open_openai(config, EngineContext(name="m", path=None)) as engine:
            yield engine


class TestByResponses(TestByChatCompletions):
    api = "responses"
