"""Engines on other machines, by token-level HTTP: registered as `remote`. Nothing heavy is imported until one is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.hookspecs import EngineContext, OpenEngine, Register, hookimpl
from gateway.protocols import Engine
from gateway_remote.config import RemoteConfig

__all__ = ["RemoteConfig", "gateway_register_engines", "open_remote"]


@asynccontextmanager
async def open_remote(config: RemoteConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Find the replicas, ask one what it is, load its tokenizer, and yield the engine; leaving closes all connections."""
    from gateway_remote.opening import open_remote as open_pool

    async with open_pool(config, context) as engine:
        yield engine


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "remote",
        open_remote,
        config=RemoteConfig,
        summary="vLLM, SGLang, TensorRT-LLM or llama-server over HTTP, with any number of replicas",
    )
