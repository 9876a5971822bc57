"""Starting vLLM, and ending it. vLLM and torch are imported here, inside `open_engine`."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.errors import ConfigurationError
from gateway.hookspecs import EngineContext
from gateway.protocols import Engine
from gateway_vllm.config import Config, engine_arguments
from gateway_vllm.environment import children_without_interrupts, set_defaults
from gateway_vllm.error_log import ErrorLog

if TYPE_CHECKING:
    from gateway_vllm.embedding import VllmEmbedder
    from gateway_vllm.engine import VllmEngine
    from gateway_vllm.host import Host

logger = logging.getLogger("gateway.vllm")


@asynccontextmanager
async def open_engine(config: Config, context: EngineContext) -> AsyncIterator[Engine]:
    """Load the model and serve it until the context is left, which ends vLLM's processes within seconds.

    Raises `ConfigurationError` for an installation without vLLM, a wrong argument, a model that cannot be loaded, or
    one that does not fit into memory: with vLLM's own reason.
    """
    engine_arguments(config, context, known=config.args)
    set_defaults(config)
    await asyncio.to_thread(_import_vllm, context)
    starting = asyncio.ensure_future(asyncio.to_thread(_start, config, context))
    try:
        llm, errors = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread cannot be stopped: what it starts has to be ended all the same.
        (done,), _ = await asyncio.wait([starting])
        if done.exception() is None:
            llm, errors = done.result()
            await asyncio.to_thread(_end, llm, errors, config)
        raise
    try:
        from gateway_vllm.host import Host

        host = Host(llm, config, errors)
        engine = await _engine(host, config, context)
        if config.lora_loading == "start":
            await host.load_adapters()
        try:
            yield engine
        finally:
            await host.end_requests()
            engine.forget()
            host.forget()
    finally:
        await asyncio.to_thread(_end, llm, errors, config)
        # Kept until the interpreter ends, vLLM's object would try to end once more.
        del llm, starting


async def _engine(host: Host, config: Config, context: EngineContext) -> VllmEngine | VllmEmbedder:
    """By what vLLM says that it can do with the model. Raises `ConfigurationError` for one that neither generates nor embeds."""
    from gateway_vllm.embedding import VllmEmbedder
    from gateway_vllm.engine import VllmEngine

    tasks = await host.llm.get_supported_tasks()
    if "generate" in tasks:
        if config.pooling is not None or config.matryoshka is not None:
            raise ConfigurationError(
                f"The model '{context.name}' generates: set task = \"embed\" in its vllm table, or leave pooling and "
                "matryoshka out."
            )
        return VllmEngine(host, config, context)
    if "embed" in tasks:
        return VllmEmbedder(host, config, context)
    raise ConfigurationError(
        f"vLLM neither generates nor embeds with the model '{context.name}': it is for {', '.join(tasks)}."
    )


def _import_vllm(context: EngineContext) -> None:
    try:
        importlib.import_module("vllm.v1.engine.async_llm")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "vllm":
            raise ConfigurationError(
                f"The model '{context.name}' uses the engine \"vllm\", and vLLM is not installed in this environment: "
                "pip install vllm (for GPUs), or see the README of litegate-vllm for the CPU build."
            ) from error
        raise ConfigurationError(
            f"vLLM cannot be imported: {error}. Install what it needs beside it."
        ) from error
    except ImportError as error:
        raise ConfigurationError(f"vLLM cannot be imported: {error}") from error


def _start(config: Config, context: EngineContext) -> tuple[Any, ErrorLog | None]:
    arg_utils = importlib.import_module("vllm.engine.arg_utils")
    async_llm = importlib.import_module("vllm.v1.engine.async_llm")
    known = {field.name for field in dataclasses.fields(arg_utils.AsyncEngineArgs)}
    arguments = engine_arguments(config, context, known)
    errors = _error_log(arguments)
    try:
        with children_without_interrupts():
            if (pooler := arguments.get("pooler_config")) is not None:
                pooling = importlib.import_module("vllm.config")
                arguments["pooler_config"] = pooling.PoolerConfig(**pooler)
            engine_args = arg_utils.AsyncEngineArgs(**arguments)
            return async_llm.AsyncLLM.from_engine_args(engine_args), errors
    except (
        Exception
    ) as error:  # Whatever it is, the model cannot be served, and the reason is what helps.
        reason = errors.cause() if errors is not None else None
        if errors is not None:
            errors.close()
        raise ConfigurationError(
            f"vLLM cannot serve the model '{context.name}': {reason or _first_sentence(error)}"
        ) from error


def _error_log(arguments: dict[str, Any]) -> ErrorLog | None:
    """Have vLLM's errors written to a second place, unless the user has configured its logging; then None."""
    vllm_logger = importlib.import_module("vllm.logger")
    envs = importlib.import_module("vllm.envs")
    own = arguments.keys() & {"logging_config", "log_config_file"}
    if own or not envs.VLLM_CONFIGURE_LOGGING or envs.VLLM_LOGGING_CONFIG_PATH:
        return None
    errors = ErrorLog(vllm_logger.DEFAULT_LOGGING_CONFIG, envs.VLLM_LOGGING_LEVEL)
    arguments["log_config_file"] = str(Path(errors.config_file))
    return errors


def _end(llm: Any, errors: ErrorLog | None, config: Config) -> None:
    try:
        llm.shutdown(timeout=config.shutdown_timeout)
    finally:
        if errors is not None:
            errors.close()


def _first_sentence(error: Exception) -> str:
    """An error's own words; pydantic's without its framing."""
    details = getattr(error, "errors", None)
    if not callable(details) or not (listed := details()):
        return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    first = listed[0]
    words = str(first.get("msg", error)).removeprefix("Value error, ")
    # The field; what follows it are pydantic's own branches.
    return f"{first['loc'][0]}: {words}" if first.get("loc") else words
