"""The embedded engine: llama.cpp in process, registered as `llamacpp`.

Heavy imports are deferred until an engine is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import Engine, EngineContext, OpenEngine, Register, hookimpl
from gateway_llamacpp.config import LlamaCppConfig

__all__ = ["LlamaCppConfig", "gateway_register_engines", "open_llamacpp"]


@asynccontextmanager
async def open_llamacpp(config: LlamaCppConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Load the model at `context.path` (None: the bundled tiny model) and yield its engine.

    Raises `ConfigurationError` if the file is missing or llama.cpp cannot load it. Leaving the context aborts running
    requests.
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
        process="own",
    )
