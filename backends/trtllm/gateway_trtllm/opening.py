"""Starts and stops TensorRT-LLM. It and torch are imported inside `open_engine`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gateway.sdk import ConfigurationError, Engine, EngineContext
from gateway.sdk.engines import first_problem
from gateway.sdk.hub import downloaded_weights
from gateway_trtllm.config import TrtllmConfig, llm_arguments
from gateway_trtllm.lifeline import Lifeline

logger = logging.getLogger("gateway.trtllm")

OLDEST = (1, 3)
"""The oldest supported version. `signatures.json` records the interface."""
NEWEST = (1, 4)
"""The newest version that this plugin was written for."""


@asynccontextmanager
async def open_engine(config: TrtllmConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Load the model and serve it until the context is left, which ends TensorRT-LLM's workers.

    Raises `ConfigurationError` with TensorRT-LLM's own reason if it is not installed, an argument is wrong, or the
    model cannot be loaded.
    """
    llm_arguments(config, context, None)
    _set_environment(config)
    await asyncio.to_thread(_import, config, context)
    path = await downloaded_weights(context.path, complete=config.revision is None)
    context = msgspec.structs.replace(context, path=path)
    starting = asyncio.ensure_future(asyncio.to_thread(_start, config, context))
    try:
        llm = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread cannot be cancelled, so wait for it and then end what it has started.
        (done,), _ = await asyncio.wait([starting])
        if done.exception() is None:
            await asyncio.to_thread(done.result().shutdown)
        raise
    try:
        from gateway_trtllm.engine import TrtllmEngine

        lifeline = Lifeline(llm._check_health, lambda: _cause(llm))
        engine = TrtllmEngine(llm, config, context, lifeline)
        async with lifeline.watched(config.health_interval):
            try:
                yield engine
            finally:
                engine.end_requests()
                await engine.end_helpers()
                engine.forget()
    finally:
        await asyncio.to_thread(_end, llm)


def _set_environment(config: TrtllmConfig) -> None:
    """Set the environment variables that TensorRT-LLM reads on import. Values set by the user are kept."""
    os.environ.setdefault("TLLM_LOG_LEVEL", config.log_level.upper())
    # Self-hosted servers do not report usage statistics by default.
    os.environ.setdefault("TRTLLM_NO_USAGE_STATS", "1")


def _import(config: TrtllmConfig, context: EngineContext) -> None:
    try:
        package = importlib.import_module("tensorrt_llm")
        importlib.import_module("tensorrt_llm.llmapi")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "tensorrt_llm":
            raise ConfigurationError(
                f"The model '{context.name}' uses the engine \"trtllm\", and TensorRT-LLM is not installed in this "
                "environment: pip install tensorrt-llm from NVIDIA's index, or run in NVIDIA's container (see the "
                "README of litegate-trtllm)."
            ) from error
        raise ConfigurationError(
            f"TensorRT-LLM cannot be imported: {error}. Install what it needs beside it."
        ) from error
    except (ImportError, OSError) as error:  # a missing CUDA or MPI library raises either
        raise ConfigurationError(f"TensorRT-LLM cannot be imported: {error}") from error
    _check_version(str(getattr(package, "__version__", "")))
    if config.guided_decoding != "none":
        try:
            importlib.import_module("xgrammar")
        except ImportError as error:
            raise ConfigurationError(
                f"The model '{context.name}' has guided_decoding = \"xgrammar\", and xgrammar cannot be imported: "
                f'{error}. Install it, or set guided_decoding = "none".'
            ) from error


def _check_version(version: str) -> None:
    match = re.match(r"(\d+)\.(\d+)", version)
    found = (int(match[1]), int(match[2])) if match else None
    if found is not None and found < OLDEST:
        raise ConfigurationError(
            f"TensorRT-LLM {version} is too old; {OLDEST[0]}.{OLDEST[1]} or newer is needed."
        )
    if found is None or found > NEWEST:
        logger.warning(
            "TensorRT-LLM %s is newer than litegate-trtllm was written for (%d.%d): run `gateway doctor --generate`.",
            version or "of an unknown version",
            *NEWEST,
        )


def _start(config: TrtllmConfig, context: EngineContext) -> Any:
    package = importlib.import_module("tensorrt_llm")
    arguments = llm_arguments(config, context, _known_arguments())
    try:
        return package.LLM(**arguments)
    except (
        Exception
    ) as error:  # Any error means that the model cannot be served; report the reason.
        raise ConfigurationError(
            f"TensorRT-LLM cannot serve the model '{context.name}': {first_problem(error)}"
        ) from error


def _known_arguments() -> Collection[str] | None:
    llmapi = importlib.import_module("tensorrt_llm.llmapi")
    declared = getattr(llmapi, "TorchLlmArgs", None)
    return None if declared is None else declared.model_fields.keys()


def _cause(llm: Any) -> object | None:
    """The error that the executor died of; versions before 1.4 do not report it."""
    return getattr(getattr(llm, "_executor", None), "_fatal_error", None)


def _end(llm: Any) -> None:
    try:
        llm.shutdown()
    except Exception as error:  # after a crash of its workers it raises their error
        logger.warning("TensorRT-LLM did not end cleanly: %s", error)
