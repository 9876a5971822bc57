"""The plugin's configuration, and its translation to arguments of TensorRT-LLM's `LLM`."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.sdk import ConfigurationError, EngineContext
from gateway.sdk.configuration import Positive
from gateway.sdk.engines import check_engine_arguments


class TrtllmConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.trtllm]`. None leaves a value to TensorRT-LLM. Names and meanings are those of its `LLM`."""

    backend: Literal["pytorch", "_autodeploy"] = "pytorch"
    dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_seq_len: int | None = None
    """Context length in tokens, prompt and output together. The model's limit in the gateway's configuration overrides
    it."""
    enable_chunked_prefill: bool | None = None
    kv_cache_config: dict[str, Any] = {}
    """Fields of TensorRT-LLM's `KvCacheConfig`: free_gpu_memory_fraction, enable_block_reuse, dtype, ..."""
    speculative_config: dict[str, Any] = {}
    """Fields of one of TensorRT-LLM's decoding configurations, with its `decoding_type`."""
    trust_remote_code: bool = False
    revision: str | None = None
    tokenizer: str | None = None
    tokenizer_mode: Literal["auto", "slow"] = "auto"
    stream_interval: Positive | None = None
    """Steps between outputs. Larger values cost less and stream in larger pieces."""
    guided_decoding: Literal["xgrammar", "none"] = "xgrammar"
    """Backend that enforces constraints."""
    max_json_whitespace: Positive | None = 64
    """Maximum run of white space in enforced JSON, in characters, at least 1; None: unlimited."""
    enable_lora: bool | None = None
    """None: on if `lora_modules` is not empty."""
    lora_modules: dict[str, str] = {}
    """Maps the name under which clients request an adapter to its folder."""
    max_lora_rank: int | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """TensorRT-LLM's log level. The environment variable `TLLM_LOG_LEVEL` overrides it."""
    health_interval: Annotated[float, Meta(gt=0)] = 1.0
    """Interval between liveness checks of TensorRT-LLM, in seconds. Running requests fail when a check does."""
    args: dict[str, Any] = {}
    """Additional arguments of `LLM`, passed unchanged."""


# Passed under their own names if set.
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
# Arguments that this plugin sets, with the setting to use instead.
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


def check_model(config: TrtllmConfig, context: EngineContext) -> None:
    """Raise `ConfigurationError` if the model has no path, or settings that do not fit together."""
    if not context.path:
        raise ConfigurationError(
            f"The model '{context.name}' has no path, which the engine \"trtllm\" needs: "
            "a folder with a Hugging Face model, or a hub id."
        )
    if config.lora_modules and config.enable_lora is False:
        raise ConfigurationError(
            f"The model '{context.name}' has lora_modules, and enable_lora = false."
        )


def llm_arguments(
    config: TrtllmConfig, context: EngineContext, known: Collection[str] | None
) -> dict[str, Any]:
    """The keyword arguments of `LLM`. `known` are its parameter names, or None if unknown.

    Raises `ConfigurationError` if the model has no path, or for a name that `args` may not contain.
    """
    check_model(config, context)
    assert context.path, "it was checked"
    check_engine_arguments(
        config.args,
        f"models.{context.name}.trtllm",
        library="TensorRT-LLM",
        fields=TrtllmConfig.__struct_fields__,
        reserved=_RESERVED,
        known=known,
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


def _lora(config: TrtllmConfig) -> dict[str, Any]:
    made: dict[str, Any] = {
        "lora_dir": [os.path.expanduser(path) for path in config.lora_modules.values()]
    }
    if config.lora_modules:
        made["max_loras"] = made["max_cpu_loras"] = len(config.lora_modules)
    if config.max_lora_rank is not None:
        made["max_lora_rank"] = config.max_lora_rank
    return made
