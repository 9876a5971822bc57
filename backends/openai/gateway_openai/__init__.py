"""Engine for any OpenAI-compatible server, used at message level. Registered as `openai`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import (
    ChosenPlugins,
    Engine,
    EngineContext,
    MakeFormat,
    MakeRenderer,
    ModelInfo,
    ModelProfile,
    OpenEngine,
    Register,
    hookimpl,
)
from gateway_openai.config import OpenAIConfig, UpstreamFeatures
from gateway_openai.native import make_native
from gateway_openai.renderer import UpstreamRenderer

__all__ = [
    "OpenAIConfig",
    "UpstreamFeatures",
    "gateway_check_configuration",
    "gateway_register_engines",
    "open_openai",
]


@asynccontextmanager
async def open_openai(config: OpenAIConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Discover the upstream's replicas and yield the engine. Leaving the context closes all connections."""
    from gateway_openai.opening import open_upstream

    async with open_upstream(config, context) as engine:
        yield engine


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    for model in chosen.models:
        if isinstance(model.config, OpenAIConfig):
            from gateway_openai.opening import check_addresses

            check_addresses(model.config, model.context.path)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "openai",
        open_openai,
        config=OpenAIConfig,
        summary="any OpenAI-compatible server, at message level, with any number of replicas",
        process="server",
    )


@hookimpl
def gateway_register_renderers(register: Register[MakeRenderer]) -> None:
    register(
        "openai",
        UpstreamRenderer,
        config=OpenAIConfig,
        summary="messages or items for the upstream of the engine openai",
    )


@hookimpl
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    register("native", make_native, summary="for engines whose upstream parses its output itself")


@hookimpl(tryfirst=True)
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    if model.engine != "openai":
        return None
    return ModelProfile(renderer="openai", parser="native", why="its upstream prompts and parses")
