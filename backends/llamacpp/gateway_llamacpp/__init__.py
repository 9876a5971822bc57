"""llama.cpp in process: Litegate's embedded engine, registered as `llamacpp`.

Nothing heavy is imported until an engine is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.hookspecs import EngineContext, OpenEngine, Register, hookimpl
from gateway.protocols import Engine
from gateway_llamacpp.config import LlamaCppConfig

__all__ = ["LlamaCppConfig", "gateway_register_engines", "open_llamacpp"]


@asynccontextmanager
async def open_llamacpp(config: LlamaCppConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Load the model of `context.path` (None: the tiny one that comes along) and yield its engine.

    Raises `ConfigurationError` for a file that is missing or that llama.cpp cannot load. Leaving aborts what still runs.
    """
    from gateway_llamacpp.loading import load

    engine = await load(config, context)
    try:
        yield engine
    finally:
        await engine.close()


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "llamacpp",
        open_llamacpp,
        config=LlamaCppConfig,
        summary="llama.cpp in process (GGUF files); without a path, a tiny demonstration model",
    )
