"""The configuration of the `llamacpp` engine."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive

CacheType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]


class LlamaCppConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[models.<model>.llamacpp]` of `gateway.toml`."""

    n_parallel: Annotated[int, Meta(ge=1, le=256)] = 8
    """Maximum number of concurrent requests (slots). Others wait by priority, then in order of arrival."""
    n_ctx: Positive | None = None
    """Context length of each slot in tokens, prompt and output together. None: `max_model_len` of the model's table, or
    the model's trained length, at most 8192; without a GPU also at most what fits into 70 % of the available memory."""
    n_threads: Positive | None = None
    """Number of compute threads. None: one per physical core, but one for models below 64 MiB, where synchronization
    costs more than it saves."""
    poll: Annotated[int, Meta(ge=0, le=100)] = 0
    """Polling level of the compute threads, 0 to 100. Polling is faster on dedicated cores and much slower on shared
    ones (the event loop needs a core)."""
    n_gpu_layers: int | None = None
    """Number of layers on the GPU; None: as many as fit."""
    n_batch: Positive = 2048
    """Maximum number of tokens per step. A long prompt checks for an abort once per step."""
    n_ubatch: Positive = 512
    """Number of tokens that the device computes at a time."""
    flash_attention: Literal["auto", "on", "off"] = "auto"
    cache_type_k: CacheType = "f16"
    cache_type_v: CacheType = "f16"
    cache_prompt: bool = True
    """Whether a request may reuse the prefix cached in its slot.

    A prefix of another API key name is never reused. Requests with a seed or a cache_salt never reuse one, because a
    cached prefix changes the last bits of the logits.
    """
    cache_ram_mib: Annotated[int, Meta(ge=0)] = 0
    """Memory for the state of conversations that lost their slot, in MiB; 0 disables it.

    This cache does not distinguish owners: with API keys of several names and a value above 0, no cached prefix is
    used.
    """
    penalty_last_n: Annotated[int, Meta(ge=0)] = 64
    """Number of last tokens, prompt included, that penalties consider."""
    task: Literal["generate", "embed", "rerank"] | None = None
    """What the model is used for. None: reranking or embedding if the file defines a pooling type, otherwise generation.
    """
    pooling: Literal["mean", "cls", "last"] | None = None
    """How an embedding model pools its output into one vector. None: as in the file, otherwise `last`."""
    matryoshka: bool = False
    """Whether requests may ask for shorter vectors with `dimensions`; for models trained for it."""
    bounded_json: bool | None = None
    """Whether JSON comes to an end where a schema sets no limit: for models that go on and on in a string. Strings then have at most 120
    characters, arrays and maps at most 4 entries, and values without a schema are nested twice at most. None: for the bundled
    tiny model only."""
    mmproj: str | None = None
    """The model's multimodal projector, a GGUF file. None: the one in the model's folder or hub repository, if any."""
    lora_modules: dict[str, str] = {}
    """Maps the name under which clients request a LoRA adapter to its local GGUF file."""
    seed: Annotated[int, Meta(ge=0)] | None = None
    """Seed of requests without one; None: random."""
    verbose: bool = False
    """Whether llama.cpp logs to standard error."""
