"""Engines on other machines, over token-level HTTP. Registered as `remote`. Heavy imports are deferred until an engine
is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import ChosenPlugins, Engine, EngineContext, OpenEngine, Register, hookimpl
from gateway_remote.config import RemoteConfig

__all__ = ["RemoteConfig", "gateway_check_configuration", "gateway_register_engines", "open_remote"]


@asynccontextmanager
async def open_remote(config: RemoteConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Discover the replicas, identify the server, load its tokenizer and yield the engine. Leaving the context closes
    all connections."""
    from gateway_remote.opening import open_remote as open_pool

    async with open_pool(config, context) as engine:
        yield engine


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    for model in chosen.models:
        if isinstance(model.config, RemoteConfig):
            from gateway_remote.discovery import discovery

            discovery(model.config, model.context.path)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "remote",
        open_remote,
        config=RemoteConfig,
        summary="vLLM, SGLang, TensorRT-LLM or llama-server over HTTP, with any number of replicas",
        process="server",
    )
