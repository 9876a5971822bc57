"""TensorRT-LLM's mapping under the contract that every engine passes, over a stand-in for TensorRT-LLM."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_testing import EngineContract
from gateway_trtllm import TrtllmConfig, open_engine

MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"


class TestTrtllm(EngineContract):
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture(scope="module")
    @classmethod
    async def engine(
        cls, tensorrt_llm: Any, config: Callable[..., TrtllmConfig]
    ) -> AsyncIterator[Engine]:
        context = EngineContext(name="tiny", path=str(MODEL), max_model_len=1024)
        async with open_engine(config(**cls.settings), context) as engine:
            yield engine


class TestTrtllmWithSeveralTokensInAnOutput(TestTrtllm):
    settings: ClassVar[dict[str, Any]] = {"stream_interval": 5}
