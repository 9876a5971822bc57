"""vLLM under the contract that every engine passes."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_testing import EngineContract
from gateway_vllm import VllmConfig, open_engine

pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)
MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"


class TestVllm(EngineContract):
    prompt = (
        f"<|im_start|>user\n{EngineContract.prompt}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )

    @pytest.fixture(scope="module")
    @classmethod
    async def engine(cls, cpu_environment: None) -> AsyncIterator[Engine]:
        config = VllmConfig(dtype="bfloat16", max_num_seqs=16, enforce_eager=True)
        context = EngineContext(name="tiny", path=str(MODEL), max_model_len=1024)
        with warnings.catch_warnings():
            # While they are imported and started, vLLM, torch and transformers warn about each other.
            warnings.simplefilter("ignore")
            opening = open_engine(config, context)
            engine = await opening.__aenter__()
        yield engine
        await opening.__aexit__(None, None, None)
