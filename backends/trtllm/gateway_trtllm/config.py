"""The plugin's configuration, and the arguments of TensorRT-LLM's `LLM` that it stands for."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.config.tables import suggestion
from gateway.errors import ConfigurationError
from gateway.hookspecs import EngineContext


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.trtllm]`. None leaves a value to TensorRT-LLM; names and meanings are those of its `LLM`."""

    backend: Literal["pytorch", "_autodeploy"] = "pytorch"
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_seq_len: int | None = None
    """Tokens of prompt and output. The limit that the gateway's own configuration sets for the model wins."""
    enable_chunked_prefill: bool | None = None
    kv_cache_config: dict[str, Any] = {}
    """Of TensorRT-LLM's `KvCacheConfig`: free_gpu_memory_fraction, enable_block_reuse, dtype, ..."""
    speculative_config: dict[str, Any] = {}
    """One of TensorRT-LLM's decoding configurations, with its `decoding_type`."""
    trust_remote_code: bool = False
    revision: str | None = None
    tokenizer: str | None = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    stream_interval: Annotated[int, Meta(ge=1)] | None = None
    """Steps from one output to the next: larger costs less and streams in larger pieces."""
    guided_decoding: Literal["xgrammar", "none"] = "xgrammar"
    """What enforces constraints."""
    max_json_whitespace: Annotated[int, Meta(ge=1)] | None = 64
    """How many white-space characters, at least 1, may follow one another in enforced JSON; None: any number."""
    enable_lora: bool | None = None
    """None: on where `lora_modules` is not empty."""
    lora_modules: dict[str, str] = {}
    """Adapters by the name under which clients ask for them: folders."""
    max_lora_rank: int | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Of TensorRT-LLM's log. The environment's `TLLM_LOG_LEVEL` wins."""
    health_interval: Annotated[float, Meta(gt=0)] = 1.0
    """Seconds between two looks at whether TensorRT-LLM still lives, by which running requests learn of its death."""
    args: dict[str, Any] = {}
    """Any further argument of `LLM`, verbatim."""


# Handed on under their own names, where they say something.
_SAME = (
    "backend",
    "dtype",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "max_batch_size",
    "max_num_tokens",
    "enable_chunked_prefill",
    "kv_cache_config",
    "speculative_config",
    "trust_remote_code",
    "revision",
    "tokenizer",
    "tokenizer_mode",
    "stream_interval",
)
# What this plugin decides, so that it must not be decided twice: what to use instead.
_RESERVED = {
    "model": "the model's path",
    "skip_tokenizer_init": "a model with a tokenizer",
    "guided_decoding_backend": "guided_decoding",
    "lora_config": "lora_modules and max_lora_rank",
    "num_postprocess_workers": "the gateway itself, which turns tokens into text",
    "post_processor_hook": "the gateway itself, which turns tokens into text",
    "encode_only": "a model that generates",
    "mm_encoder_only": "a model that generates",
}


def llm_arguments(
    config: Config, context: EngineContext, known: Collection[str] | None
) -> dict[str, Any]:
    """The keyword arguments of `LLM`, of which `known` are the names (None: they are not known).

    Raises `ConfigurationError` for a missing model, and for what `args` may not say.
    """
    if not context.path:
        raise ConfigurationError(
            f"The model '{context.name}' has no path, which the engine \"trtllm\" needs: "
            "a folder with a Hugging Face model, or a hub id."
        )
    _check_free(config.args, known, context.name)
    if config.lora_modules and config.enable_lora is False:
        raise ConfigurationError(
            f"The model '{context.name}' has lora_modules, and enable_lora = false."
        )
    said = msgspec.structs.asdict(config)
    arguments = {name: said[name] for name in _SAME if said[name] not in (None, {})}
    arguments["model"] = os.path.expanduser(context.path)
    if config.guided_decoding != "none":
        arguments["guided_decoding_backend"] = config.guided_decoding
    limit = context.max_model_len or config.max_seq_len
    if limit is not None:
        arguments["max_seq_len"] = limit
    if config.enable_lora or config.lora_modules:
        arguments["enable_lora"] = True
        arguments["lora_config"] = _lora(config)
    return {**arguments, **config.args}


def _lora(config: Config) -> dict[str, Any]:
    made: dict[str, Any] = {
        "lora_dir": [os.path.expanduser(path) for path in config.lora_modules.values()]
    }
    if config.lora_modules:
        made["max_loras"] = made["max_cpu_loras"] = len(config.lora_modules)
    if config.max_lora_rank is not None:
        made["max_lora_rank"] = config.max_lora_rank
    return made


def _check_free(args: Mapping[str, Any], known: Collection[str] | None, model: str) -> None:
    where = f"models.{model}.trtllm"
    for name in args:
        if name in _RESERVED:
            raise ConfigurationError(
                f"{where}.args.{name} cannot be set there; use {_RESERVED[name]} instead."
            )
        if name in Config.__struct_fields__:
            raise ConfigurationError(f"{where}.args.{name} has a place of its own: {where}.{name}.")
        if known is not None and name not in known:
            raise ConfigurationError(
                f"{where}.args.{name}: TensorRT-LLM has no such argument; {suggestion(name, known)}"
            )
