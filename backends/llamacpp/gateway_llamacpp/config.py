"""The configuration of the `llamacpp` engine."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

CacheType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]


class LlamaCppConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.llamacpp]` of `gateway.toml`."""

    n_parallel: Annotated[int, Meta(ge=1, le=256)] = 8
    """Requests that generate at once (slots). Further ones wait, by priority and then by age."""
    n_ctx: Positive | None = None
    """Tokens of one request, prompt and output together; every slot has its own. None: `max_model_len` of the model's
    table, or what the model was trained for, at most 8192."""
    n_threads: Positive | None = None
    """Threads of the computation; None: one per physical core, and a single one for a model of less than 64 MiB, where
    threads wait for each other longer than they compute."""
    poll: Annotated[int, Meta(ge=0, le=100)] = 0
    """How hard the computation's threads spin while they wait, 0 to 100. Spinning is faster on cores that nothing else
    uses, and very much slower on cores that are shared (the event loop needs one)."""
    n_gpu_layers: int | None = None
    """Layers on the GPU; None: as many as fit."""
    n_batch: Positive = 2048
    """Tokens that one step may take in; also how often a long prompt looks whether it was aborted."""
    n_ubatch: Positive = 512
    """Tokens that the device computes at a time."""
    flash_attention: Literal["auto", "on", "off"] = "auto"
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    cache_prompt: bool = True
    """Whether a request may start from the prefix that its slot still holds. Requests with a seed or a cache_salt never
    do: a cached prefix changes the last bits of the logits."""
    cache_ram_mib: Annotated[int, Meta(ge=0)] = 0
    """MiB of memory for the state of conversations that lost their slot; 0: none is kept."""
    penalty_last_n: Annotated[int, Meta(ge=0)] = 64
    """Over how many last tokens (the prompt's too) the penalties look."""
    task: Literal["generate", "embed"] | None = None
    """What the model does; None: it embeds if its file says how vectors are made of its output, and else generates."""
    pooling: Literal["mean", "cls", "last"] | None = None
    """How a model that embeds makes one vector of its output; None: what its file says, else `last`."""
    matryoshka: bool = False
    """Whether requests may ask for shorter vectors (`dimensions`): for models that were trained for it."""
    lora_modules: dict[str, str] = {}
    """LoRA adapters by the name under which clients ask for them: GGUF files on this machine."""
    seed: Annotated[int, Meta(ge=0)] | None = None
    """Seed of requests that bring none; None: random."""
    verbose: bool = False
    """Let llama.cpp write its log to standard error."""
