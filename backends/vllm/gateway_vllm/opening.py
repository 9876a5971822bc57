"""Starts and stops vLLM. vLLM and torch are imported inside `open_engine`."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.sdk import ConfigurationError, Engine, EngineContext
from gateway.sdk.engines import first_problem
from gateway.sdk.hub import downloaded_weights
from gateway_vllm.config import VllmConfig, engine_arguments
from gateway_vllm.environment import children_without_interrupts, set_defaults
from gateway_vllm.error_log import ErrorLog

if TYPE_CHECKING:
    from gateway_vllm.embedding import VllmEmbedder
    from gateway_vllm.engine import VllmEngine
    from gateway_vllm.host import Host
    from gateway_vllm.reranking import VllmReranker

logger = logging.getLogger("gateway.vllm")

_OTHER_FILES = {
    "code_revision",
    "config_format",
    "download_dir",
    "load_format",
    "tokenizer_mode",
    "tokenizer_revision",
}
"""Arguments by which vLLM loads other files of a repository, or keeps them elsewhere."""


@asynccontextmanager
async def open_engine(config: VllmConfig, context: EngineContext) -> AsyncIterator[Engine]:
    """Load the model and serve it until the context is left, which ends vLLM's processes within seconds.

    Raises `ConfigurationError` with vLLM's own reason if vLLM is not installed, an argument is wrong, or the model
    cannot be loaded or does not fit into memory.
    """
    engine_arguments(config, context, known=config.args)
    template = await asyncio.to_thread(_score_template, config, context)
    set_defaults(config)
    await asyncio.to_thread(_import_vllm, context)
    usual = config.revision is None and not _OTHER_FILES & config.args.keys()
    path = await downloaded_weights(context.path, complete=usual)
    context = msgspec.structs.replace(context, path=path)
    starting = asyncio.ensure_future(asyncio.to_thread(_start, config, context))
    try:
        llm, errors = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The thread cannot be cancelled, so wait for it and then end what it has started.
        (done,), _ = await asyncio.wait([starting])
        if done.exception() is None:
            llm, errors = done.result()
            await asyncio.to_thread(_end, llm, errors, config)
        raise
    try:
        from gateway_vllm.host import Host

        host = Host(llm, config, errors)
        engine = await _engine(host, config, context, template)
        if config.lora_loading == "start":
            await host.load_adapters()
        try:
            yield engine
        finally:
            await host.end_requests()
            await engine.end_helpers()
            engine.forget()
            host.forget()
    finally:
        await asyncio.to_thread(_end, llm, errors, config)
        # If vLLM's object were kept, its finalizer would try to end it again.
        del llm, starting


async def _engine(
    host: Host, config: VllmConfig, context: EngineContext, template: str | None
) -> VllmEngine | VllmEmbedder | VllmReranker:
    """The engine for what vLLM supports with the model. Raises `ConfigurationError` if the model neither generates, embeds
    nor reranks."""
    from gateway_vllm.embedding import VllmEmbedder
    from gateway_vllm.engine import VllmEngine

    tasks = await host.llm.get_supported_tasks()
    if config.score_template is not None and "classify" not in tasks:
        raise ConfigurationError(
            f"The model '{context.name}' does not rerank: leave score_template out, or set task = \"rerank\" in its vllm "
            "table."
        )
    if "generate" in tasks:
        if config.pooling is not None or config.matryoshka is not None:
            raise ConfigurationError(
                f"The model '{context.name}' generates: set task = \"embed\" in its vllm table, or leave pooling and "
                "matryoshka out."
            )
        return VllmEngine(host, config, context)
    if "embed" in tasks:
        return VllmEmbedder(host, config, context)
    labels = getattr(host.llm.model_config.hf_config, "num_labels", 1)
    if "classify" in tasks and labels == 1:
        from gateway_vllm.reranking import VllmReranker

        return VllmReranker(host, config, context, template)
    why = f", with {labels} labels, and a model that reranks has one" if "classify" in tasks else ""
    raise ConfigurationError(
        f"vLLM neither generates, embeds nor reranks with the model '{context.name}': it is for {', '.join(tasks)}{why}."
    )


def _score_template(config: VllmConfig, context: EngineContext) -> str | None:
    """The text of the configured score template."""
    path = config.score_template
    if path is None:
        return None
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"models.{context.name}.vllm.score_template: {path} cannot be read: {error}"
        ) from error


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


def _start(config: VllmConfig, context: EngineContext) -> tuple[Any, ErrorLog | None]:
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
    ) as error:  # Any error means that the model cannot be served; report the reason.
        reason = errors.cause() if errors is not None else None
        if errors is not None:
            errors.close()
        raise ConfigurationError(
            f"vLLM cannot serve the model '{context.name}': {reason or first_problem(error)}"
        ) from error


def _error_log(arguments: dict[str, Any]) -> ErrorLog | None:
    """Log vLLM's errors to a second place; None if the user has configured vLLM's logging."""
    vllm_logger = importlib.import_module("vllm.logger")
    envs = importlib.import_module("vllm.envs")
    own = arguments.keys() & {"logging_config", "log_config_file"}
    if own or not envs.VLLM_CONFIGURE_LOGGING or envs.VLLM_LOGGING_CONFIG_PATH:
        return None
    errors = ErrorLog(vllm_logger.DEFAULT_LOGGING_CONFIG, envs.VLLM_LOGGING_LEVEL)
    arguments["log_config_file"] = str(Path(errors.config_file))
    return errors


def _end(llm: Any, errors: ErrorLog | None, config: VllmConfig) -> None:
    try:
        llm.shutdown(timeout=config.shutdown_timeout)
    finally:
        if errors is not None:
            errors.close()
