"""Models that only embed: how they are opened, and what their mistakes are called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import hookimpl
from gateway.base.errors import ConfigurationError, Unsupported
from gateway.config import ModelConfig
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import ModelInfo, ParserContext, Turn
from gateway.startup.model_opening import OpenedModel, open_model
from gateway.startup.model_plan import resolve_model
from gateway_scripted import ScriptedEngine
from gateway_testing.server import run_gateway

pytestmark = pytest.mark.anyio


class Engines:
    """A plugin with one engine, and neither renderers nor formats."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    @asynccontextmanager
    async def open(self, config: Any, context: EngineContext) -> AsyncIterator[Any]:
        yield self.engine

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("mine", self.open)


async def opened(engine: Any, **config: Any) -> OpenedModel:
    plugins = load_plugins(extra=[Engines(engine)], installed=False)
    async with AsyncExitStack() as stack:
        plan = resolve_model("m", ModelConfig(engine="mine", **config), plugins)
        return await open_model(plan, stack)


async def test_it_needs_neither_renderer_nor_format() -> None:
    model = await opened(ScriptedEngine(generates=False))
    assert model.why == "engine mine (named in the configuration), which only embeds"
    with pytest.raises(Unsupported, match="only embeds"):
        model.renderer.render(Turn(items=[]))
    with pytest.raises(Unsupported, match="only embeds"):
        model.output_format.parser(ParserContext())


async def test_a_model_that_generates_too_needs_them() -> None:
    with pytest.raises(ConfigurationError, match="no plugin knows the renderer"):
        await opened(ScriptedEngine())


@pytest.mark.parametrize("key", ["reasoning", "tools", "parser", "renderer"])
async def test_what_it_cannot_have_is_not_configured(key: str, tmp_path: Any) -> None:
    model = {"engine": "scripted", "scripted": {"task": "embed"}, key: "qwen3"}
    if key == "renderer":
        model[key] = "chat_template"
    with (
        pytest.raises(ConfigurationError, match=f"models.m.{key}: this model only embeds"),
        run_gateway({"models": {"m": model}}, tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("capabilities", "sentence"),
    [
        ({"embeddings"}, "is not an EmbeddingEngine"),
        ({"rerank"}, "is not a ScoringEngine"),
        ({"logprobs"}, "neither generates nor embeds nor reranks"),
    ],
)
async def test_an_engine_that_says_what_it_is_not_stops_the_start(
    capabilities: set[str], sentence: str
) -> None:
    info = ModelInfo(name="m", engine="mine")
    engine = SimpleNamespace(info=info, tokenizer=None, capabilities=frozenset(capabilities))
    with pytest.raises(ConfigurationError, match=f"models.m: the engine 'mine' .*{sentence}"):
        await opened(engine)
