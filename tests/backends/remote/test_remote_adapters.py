"""LoRA adapters on other machines: listed by the servers, or loaded by them when they are asked for."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from gateway.checks.generating import generate
from gateway.errors import InvalidRequest
from gateway.hookspecs import EngineContext
from gateway.protocols import Engine, EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote

CONTEXT = EngineContext(name="tiny", path=None)
PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here")
@pytest.mark.parametrize("dialect", ["vllm", "vllm-generate"])
async def test_an_adapter_is_loaded_when_it_is_asked_for(
    vllm_adapter_server: str, dialect: Any
) -> None:
    config = RemoteConfig(
        urls=[vllm_adapter_server], dialect=dialect, adapters=["noise", "missing", "listed"]
    )
    async with open_remote(config, CONTEXT) as engine:
        assert engine.info.adapters == ("listed", "noise", "missing")
        plain, listed, noise = [
            await said(engine, adapter) for adapter in (None, "listed", "noise")
        ]
        assert "Hello" in plain
        assert listed == noise != plain
        for _ in range(5):
            with pytest.raises(InvalidRequest) as refused:
                await said(engine, "missing")
            assert (refused.value.param, refused.value.code) == ("model", "model_not_found")
        assert await said(engine, None) == plain


async def said(engine: Engine, adapter: str | None) -> str:
    assert engine.tokenizer is not None
    request = EngineRequest(
        request_id=f"adapter-{adapter}",
        prompt=TokensPrompt(token_ids=engine.tokenizer.encode(PROMPT)),
        sampling=Sampling(max_tokens=12, temperature=0.0),
        adapter=adapter,
    )
    return (await generate(engine, request)).text
