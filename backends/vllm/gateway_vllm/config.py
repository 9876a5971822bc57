"""The plugin's configuration, and the engine arguments that it stands for."""

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
    """`[models.<model>.vllm]`. None leaves a value to vLLM; names and meanings are those of vLLM's own arguments."""

    dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    """The limit that the gateway's own configuration sets for the model wins over this one."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool = False
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    trust_remote_code: bool = False
    revision: str | None = None
    tokenizer: str | None = None
    enable_prefix_caching: bool | None = None
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """`priority` is needed for requests that carry one."""
    seed: int | None = None
    max_logprobs: int | None = None
    enable_lora: bool | None = None
    """None: on where `lora_modules` is not empty."""
    lora_modules: dict[str, str] = {}
    """Adapters by the name under which clients ask for them: a folder or a hub id."""
    max_lora_rank: int | None = None
    max_loras: Annotated[int, Meta(ge=1)] | None = None
    """Adapters that one batch may have; None: all of them. With more, vLLM puts them in and out."""
    lora_loading: Literal["start", "first_use"] = "start"
    """When an adapter is loaded: at the start, which one that cannot be loaded stops, or when it is first asked for."""
    task: Literal["generate", "embed"] | None = None
    """What the model does; None: what vLLM finds in its configuration. `embed` makes vectors of any model's output."""
    pooling: Literal["mean", "cls", "last"] | None = None
    """How a model that embeds makes one vector of its output; None: as its configuration says."""
    matryoshka: bool | None = None
    """Whether requests may ask for shorter vectors (`dimensions`); None: as its configuration says."""
    structured_outputs: Literal["xgrammar", "guidance"] = "xgrammar"
    """What enforces constraints. One for the whole engine: vLLM's `auto` would let the first request choose."""
    max_json_whitespace: Annotated[int, Meta(ge=1)] | None = 64
    """How many white-space characters, at least 1, may follow one another in enforced JSON (xgrammar only); None: any
    number. A model that loses its way in an enforced object writes spaces until its token limit."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Of vLLM's log. The environment's `VLLM_LOGGING_LEVEL` wins."""
    shutdown_timeout: float = 10.0
    """Seconds that vLLM's processes have to end at shutdown before they are killed."""
    args: dict[str, Any] = {}
    """Any further argument of vLLM's `AsyncEngineArgs`, verbatim."""


# What is not handed on under its own name, or not to vLLM at all.
_OWN = (
    "args",
    "enable_lora",
    "log_level",
    "lora_loading",
    "lora_modules",
    "matryoshka",
    "max_json_whitespace",
    "max_model_len",
    "pooling",
    "shutdown_timeout",
    "structured_outputs",
    "task",
)
# What this plugin decides, so that it must not be decided twice: the name to use instead.
_RESERVED = {
    "model": "the model's path",
    "structured_outputs_config": "structured_outputs",
    "skip_tokenizer_init": "a model with a tokenizer",
    "tokens_only": "a model with a tokenizer",
    "runner": "task",
    "convert": "task",
    "pooler_config": "pooling",
    "stream_interval": "the gateway's own pacing",
}


def engine_arguments(
    config: Config, context: EngineContext, known: Collection[str]
) -> dict[str, Any]:
    """The keyword arguments of `AsyncEngineArgs`, of which `known` are the names.

    Raises `ConfigurationError` for a missing model, and for what `args` may not say.
    """
    if not context.path:
        raise ConfigurationError(
            f"The model '{context.name}' has no path, which the engine \"vllm\" needs: "
            "a folder with a Hugging Face model, or a hub id."
        )
    typed = {
        name: value
        for name, value in msgspec.structs.asdict(config).items()
        if name not in _OWN and value is not None
    }
    _check_free(config.args, known, context.name)
    if config.lora_modules and config.enable_lora is False:
        raise ConfigurationError(
            f"The model '{context.name}' has lora_modules, and enable_lora = false."
        )
    lora = bool(config.lora_modules) if config.enable_lora is None else config.enable_lora
    arguments: dict[str, Any] = {
        **typed,
        "model": os.path.expanduser(context.path),
        "structured_outputs_config": {"backend": config.structured_outputs},
        "enable_lora": lora,
        # Nobody reads vLLM's own statistics here, and they cost time for every token.
        "disable_log_stats": True,
        "use_tqdm_on_load": config.log_level in ("debug", "info"),
    }
    limit = context.max_model_len or config.max_model_len
    if limit is not None:
        arguments["max_model_len"] = limit
    if config.lora_modules and config.max_loras is None:
        arguments["max_loras"] = len(config.lora_modules)
    match config.task:
        case "generate":
            arguments["runner"] = "generate"
        case "embed":
            arguments |= {"runner": "pooling", "convert": "embed"}
        case None:
            pass
    if config.pooling is not None:
        arguments["pooler_config"] = {"seq_pooling_type": config.pooling.upper()}
    if config.matryoshka is not None:
        if "hf_overrides" in config.args:
            raise ConfigurationError(
                f"models.{context.name}.vllm: matryoshka is one of vLLM's hf_overrides, of which args has others: write "
                "is_matryoshka among them, and leave matryoshka out."
            )
        arguments["hf_overrides"] = {"is_matryoshka": config.matryoshka}
    return {**arguments, **config.args}


def _check_free(args: Mapping[str, Any], known: Collection[str], model: str) -> None:
    where = f"models.{model}.vllm"
    for name in args:
        if name in _RESERVED:
            raise ConfigurationError(
                f"{where}.args.{name} cannot be set there; use {_RESERVED[name]} instead."
            )
        if name in Config.__struct_fields__:
            raise ConfigurationError(f"{where}.args.{name} has a place of its own: {where}.{name}.")
        if name not in known:
            raise ConfigurationError(
                f"{where}.args.{name}: vLLM has no such engine argument; {suggestion(name, known)}"
            )
