"""The plugin's configuration, and its translation to engine arguments."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, Literal

import msgspec
from msgspec import Struct

from gateway.sdk import ConfigurationError, EngineContext
from gateway.sdk.configuration import Positive
from gateway.sdk.engines import check_engine_arguments


class VllmConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.vllm]`. None leaves a value to vLLM. Names and meanings are those of vLLM's arguments."""

    dtype: str = "auto"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    """The model's limit in the gateway's own configuration overrides this one."""
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
    """`priority` is required for requests that set a priority."""
    seed: int | None = None
    max_logprobs: int | None = None
    enable_lora: bool | None = None
    """None: on if `lora_modules` is not empty."""
    lora_modules: dict[str, str] = {}
    """Maps the name under which clients request an adapter to a folder or a hub id."""
    max_lora_rank: int | None = None
    max_loras: Positive | None = None
    """Maximum number of adapters in one batch; None: all of them. vLLM swaps adapters beyond that."""
    lora_loading: Literal["start", "first_use"] = "start"
    """When adapters are loaded: at start-up, where a failure stops the server, or at the first request."""
    task: Literal["generate", "embed", "rerank"] | None = None
    """What the model is used for; None: as vLLM derives it from the model. `embed` makes any model produce vectors, and
    `rerank` makes a generating model score by a head that its configuration describes (`hf_overrides` among `args`)."""
    score_template: str | None = None
    """For models that rerank: the file of the template (Jinja) that combines a `query` and a `document`; None: as the
    model's class or its tokenizer combines pairs."""
    pooling: Literal["mean", "cls", "last"] | None = None
    """How an embedding model pools its output into one vector; None: as the model's configuration says."""
    matryoshka: bool | None = None
    """Whether requests may ask for shorter vectors with `dimensions`; None: as the model's configuration says."""
    structured_outputs: Literal["xgrammar", "guidance"] = "xgrammar"
    """Backend that enforces constraints, for the whole engine. vLLM's `auto` would let the first request choose."""
    max_json_whitespace: Positive | None = 64
    """Maximum run of white space in enforced JSON, in characters, at least 1 (xgrammar only); None: unlimited. Without
    a limit, a model may emit white space until its token limit."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """vLLM's log level. The environment variable `VLLM_LOGGING_LEVEL` overrides it."""
    metrics: bool = False
    """Whether vLLM keeps its own statistics, which `/metrics` then shows as `vllm:…`. Costs time per token. Of several
    models in one process, vLLM keeps those of the last."""
    shutdown_timeout: float = 10.0
    """Seconds that vLLM's processes have to shut down before they are killed."""
    args: dict[str, Any] = {}
    """Additional arguments of vLLM's `AsyncEngineArgs`, passed unchanged."""


# Fields that are passed under another name, or not passed to vLLM.
_OWN = (
    "args",
    "enable_lora",
    "log_level",
    "lora_loading",
    "lora_modules",
    "matryoshka",
    "max_json_whitespace",
    "max_model_len",
    "metrics",
    "pooling",
    "score_template",
    "shutdown_timeout",
    "structured_outputs",
    "task",
)
# Arguments that this plugin sets, with the setting to use instead.
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


def check_model(config: VllmConfig, context: EngineContext) -> None:
    """Raise `ConfigurationError` if the model has no path, or settings that do not fit together."""
    if not context.path:
        raise ConfigurationError(
            f"The model '{context.name}' has no path, which the engine \"vllm\" needs: "
            "a folder with a Hugging Face model, or a hub id."
        )
    if config.lora_modules and config.enable_lora is False:
        raise ConfigurationError(
            f"The model '{context.name}' has lora_modules, and enable_lora = false."
        )


def engine_arguments(
    config: VllmConfig, context: EngineContext, known: Collection[str]
) -> dict[str, Any]:
    """The keyword arguments of `AsyncEngineArgs`. `known` are its parameter names.

    Raises `ConfigurationError` if the model has no path, or for a name that `args` may not contain.
    """
    check_model(config, context)
    assert context.path, "it was checked"
    typed = {
        name: value
        for name, value in msgspec.structs.asdict(config).items()
        if name not in _OWN and value is not None
    }
    check_engine_arguments(
        config.args,
        f"models.{context.name}.vllm",
        library="vLLM",
        fields=VllmConfig.__struct_fields__,
        reserved=_RESERVED,
        known=known,
    )
    lora = bool(config.lora_modules) if config.enable_lora is None else config.enable_lora
    arguments: dict[str, Any] = {
        **typed,
        "model": os.path.expanduser(context.path),
        # A label of vLLM's metrics, which is otherwise the path.
        "served_model_name": context.name,
        "structured_outputs_config": {"backend": config.structured_outputs},
        "enable_lora": lora,
        # vLLM's own statistics cost time per token.
        "disable_log_stats": not config.metrics,
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
        case "rerank":
            arguments |= {"runner": "pooling", "convert": "classify"}
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
