"""LoRA adapters on other machines: listed by the servers, or loaded by them when they are asked for."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import InvalidRequest
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import (
    AdapterLoadingEngine,
    Engine,
    EngineRequest,
    Sampling,
    TokensPrompt,
)
from gateway_doctor.checks.generating import generate
from gateway_remote import RemoteConfig, open_remote

CONTEXT = EngineContext(name="tiny", path=None)
PROMPT = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


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


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here")
async def test_an_adapter_is_loaded_and_unloaded_on_the_servers(
    vllm_adapter_server: str, noise: Path, tmp_path: Path
) -> None:
    config = RemoteConfig(urls=[vllm_adapter_server])
    async with open_remote(config, CONTEXT) as engine:
        assert isinstance(engine, AdapterLoadingEngine)
        before = engine.info.adapters
        await engine.load_adapter("second", str(noise))
        assert engine.info.adapters == (*before, "second")
        assert await said(engine, "second") == await said(engine, "listed")
        with pytest.raises(InvalidRequest, match="cannot load the adapter 'broken'"):
            await engine.load_adapter("broken", str(tmp_path))
        await engine.unload_adapter("second")
        assert engine.info.adapters == before
        with pytest.raises(InvalidRequest, match="There is no adapter 'second'"):
            await said(engine, "second")


async def test_a_server_without_the_route_is_told(
    stubs: Callable[..., Awaitable[list[Any]]], vocabulary: str
) -> None:
    [stub] = await stubs(1)
    config = RemoteConfig(urls=[stub.url], tokenizer=vocabulary)
    async with open_remote(config, EngineContext(name="m", path=None)) as engine:
        assert isinstance(engine, AdapterLoadingEngine)
        with pytest.raises(InvalidRequest, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING"):
            await engine.load_adapter("new", "/adapters/new")
        assert engine.info.adapters == ()


async def said(engine: Engine, adapter: str | None) -> str:
    assert engine.tokenizer is not None
    request = EngineRequest(
        request_id=f"adapter-{adapter}",
        prompt=TokensPrompt(token_ids=engine.tokenizer.encode(PROMPT)),
        sampling=Sampling(max_tokens=12, temperature=0.0),
        adapter=adapter,
    )
    return (await generate(engine, request)).text
