"""The stand-in for TensorRT-LLM, importable, and engines over it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_trtllm import TrtllmConfig, open_engine

MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"
STANDIN = Path(__file__).parent / "standin"
GUIDED = importlib.util.find_spec("xgrammar") is not None
"""The real TensorRT-LLM brings xgrammar; here it comes with vLLM."""
REQUEST = {field.name for field in msgspec.structs.fields(EngineRequest)}


@pytest.fixture(scope="module")
def tensorrt_llm() -> Iterator[Any]:
    """The stand-in, as the module `tensorrt_llm`."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    sys.path.insert(0, str(STANDIN))
    yield importlib.import_module("tensorrt_llm")
    sys.path.remove(str(STANDIN))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]
    sys.modules.pop("gateway_trtllm.engine", None)


@pytest.fixture(scope="session")
def config() -> Callable[..., TrtllmConfig]:
    """A configuration that the stand-in can serve here."""

    def make(**changes: Any) -> TrtllmConfig:
        guided = "xgrammar" if GUIDED else "none"
        return TrtllmConfig(**{"guided_decoding": guided, "health_interval": 0.05, **changes})

    return make


@pytest.fixture
async def start(
    tensorrt_llm: Any, config: Callable[..., TrtllmConfig]
) -> AsyncIterator[Callable[..., Any]]:
    """Opens engines; gives each with the `LLM` behind it."""
    async with AsyncExitStack() as stack:

        async def open_one(max_model_len: int | None = 512, **changes: Any) -> Any:
            context = EngineContext(name="tiny", path=str(MODEL), max_model_len=max_model_len)
            engine = await stack.enter_async_context(open_engine(config(**changes), context))
            return engine, tensorrt_llm.LLM.opened[-1]

        yield open_one


@pytest.fixture
def ask() -> Callable[..., EngineRequest]:
    """A request; `settings` are its own and its sampling's."""

    def make(engine: Any, text: str = "hello there, how are you", **settings: Any) -> EngineRequest:
        own = {name: settings.pop(name) for name in list(settings) if name in REQUEST}
        sampling = Sampling(
            **{"max_tokens": 24, "temperature": 0.0, "ignore_eos": True, **settings}
        )
        own.setdefault("prompt", TokensPrompt(token_ids=engine.tokenizer.encode(text)))
        return EngineRequest(request_id="test", sampling=sampling, **own)

    return make
