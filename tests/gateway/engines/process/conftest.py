"""Engines in processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from gateway.config import ModelConfig, PluginsConfig
from gateway.engines.process.client import ProcessEngine, engine_in_process
from gateway.engines.process.messages import QueueLimits
from gateway.engines.process.starting import EngineProcesses, EngineSpec, HostSettings

OpenInProcess = Callable[..., AbstractAsyncContextManager[ProcessEngine]]


def spec_of(engine: str, **options: Any) -> EngineSpec:
    config = ModelConfig(
        engine=engine,
        path=options.pop("path", None),
        max_model_len=options.pop("max_model_len", None),
        parser="qwen3" if generates(options) else None,
        options={engine: options} if options else {},
    )
    return EngineSpec(name="m", config=config, plugins=PluginsConfig(), compile_seconds=10.0)


def generates(options: dict[str, Any]) -> bool:
    return options.get("task", "both") not in ("embed", "rerank")


@asynccontextmanager
async def opened(
    engine: str, limits: QueueLimits | None = None, **options: Any
) -> AsyncIterator[ProcessEngine]:
    processes = EngineProcesses(HostSettings(end_seconds=2.0))
    try:
        async with engine_in_process(spec_of(engine, **options), processes, limits) as made:
            yield made
    finally:
        await processes.close()


@pytest.fixture
def open_in_process() -> OpenInProcess:
    """Opens an engine by its name, with its settings, in a process."""
    return opened
