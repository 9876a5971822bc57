"""The configuration of the `openai` engine."""

from __future__ import annotations

import hashlib
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.sdk.configuration import Positive, Seconds
from gateway_remote.config import PoolConfig

Api: TypeAlias = Literal["chat", "responses"]
ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
Extension: TypeAlias = Literal[
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "stop_token_ids",
    "bad_words",
    "allowed_token_ids",
    "ignore_eos",
    "include_stop_str_in_output",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "cache_salt",
    "priority",
    "vllm_xargs",
    "thinking_token_budget",
    "thinking_budget_tokens",
    "use_beam_search",
    "structured_outputs",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
]
Hint: TypeAlias = Literal[
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "verbosity",
    "reasoning_summary",
]

OF_CHAT = frozenset({"presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop"})
"""Parameters that Chat Completions defines and the Responses API lacks. With `responses` they are extensions."""


class UpstreamFeatures(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`takes`: features that the upstream supports. Requests that use others are rejected with a 400 that names the
    parameter."""

    tools: bool = True
    parallel_tools: bool = True
    """Whether it supports `parallel_tool_calls`. If not, the gateway keeps only the first call."""
    custom_tools: bool | None = None
    """Whether it supports custom (free-text) tools. If not, each is sent as a function with one string parameter.
    Default: true for `responses`, false for `chat`."""
    json_schema: bool = True
    json_object: bool = True
    logprobs: bool = True
    images: bool = True
    files: bool = True
    audio: bool = True
    reasoning_effort: bool = True
    encrypted_reasoning: bool = False
    """Whether it returns its reasoning encrypted (`include: ["reasoning.encrypted_content"]`) and takes it back. For
    reasoning models of OpenAI, with `responses`."""


class OpenAIConfig(PoolConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.openai]`. Times are in seconds."""

    base_url: str | None = None
    """Base URL in the form OpenAI's SDKs use, with `/v1`: `https://host/v1`. List several replicas with `urls`, `dns`
    or `file`."""
    api: Api = "chat"
    """Which API of the upstream to use: Chat Completions or Responses."""
    model: str | None = None
    """The model's name at the upstream. Default: the name in this gateway."""
    max_model_len: Positive | None = None
    """Context length in tokens, prompt and output together; informational. Default: what the upstream lists."""
    task: Literal["generate", "embed", "both", "rerank"] = "generate"
    """What the model is used for: generation, embeddings, both of these, or reranking."""
    takes: UpstreamFeatures = UpstreamFeatures()
    extensions: tuple[Extension, ...] = ()
    """Parameters beyond the API that the upstream supports, by vLLM's names."""
    forward: tuple[Hint, ...] = (
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
        "verbosity",
        "reasoning_summary",
    )
    """Serving hints of clients that are passed on. Others are dropped."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """The Chat Completions field that limits the output."""
    instructions_role: Literal["system", "developer"] = "system"
    """The Chat Completions role of instructions and developer messages."""
    strict_default: bool | None = None
    """Whether the upstream's Responses API treats functions without `strict` as strict, as OpenAI's does. Then `false` is sent
    with them. None: unless its list of models is that of a self-hosted server, whose chat templates may print `strict`."""
    reasoning_fields: tuple[ReasoningField, ...] = ("reasoning_content", "reasoning")
    """Chat Completions fields that may hold reasoning. The first one present is used."""
    send_reasoning: bool = True
    """Whether earlier reasoning is sent back; in Chat Completions in the first of `reasoning_fields`."""
    stream_usage: bool = True
    """Whether to request usage with `stream_options` in Chat Completions. Without it, tokens are not counted."""
    extra_body: dict[str, Any] = {}
    """Additional fields of every request body. They override the gateway's own."""
    health_path: str = "/models"
    """Health check path, below the base URL. If empty, only the outcomes of requests are used."""
    health_interval: Seconds = 10.0
    health_timeout: Seconds = 5.0
    affinity_block: Positive = 128
    """Size of a prefix-affinity block, in bytes of the messages."""

    def __post_init__(self) -> None:
        if not self.reasoning_fields:
            raise ValueError('reasoning_fields names no field; the default has "reasoning_content"')
        for name in ("model", "messages", "input", "stream"):
            if name in self.extra_body:
                raise ValueError(f"extra_body cannot set {name!r}")
        if self.takes.encrypted_reasoning and self.api != "responses":
            raise ValueError('takes.encrypted_reasoning is for api = "responses"')
        styles = {_prefix(url) for url in (self.base_url, self.dns, *self.urls) if url}
        if len(styles) > 1:
            raise ValueError("some of the upstream's addresses end with /v1, and some do not")

    @property
    def custom_tools(self) -> bool:
        """Whether the upstream supports custom (free-text) tools."""
        configured = self.takes.custom_tools
        return self.api == "responses" if configured is None else configured

    @property
    def origin(self) -> str:
        """Marks what this upstream encrypted, so that no other one is sent it."""
        addresses = {url for url in (self.base_url, self.dns, self.file, *self.urls) if url}
        place = "\n".join((self.model or "", *sorted(addresses)))
        return hashlib.sha256(place.encode()).hexdigest()[:12]

    def extends(self, name: str) -> bool:
        """Whether `extensions` lists this parameter."""
        return name in self.extensions or (self.api == "chat" and name in OF_CHAT)

    def prefix(self, path: str | None) -> str:
        """The path that all routes start with, appended to the pool's address (which lacks `/v1`).

        `path` is the model's path; it is used if it is an address.
        """
        addresses = [url for url in (self.base_url, self.dns, *self.urls, path) if url]
        return _prefix(addresses[0]) if addresses else "/v1"


def _prefix(url: str) -> str:
    path = urlsplit(url.strip()).path.rstrip("/")
    return "/v1" if path in ("", "/v1") or path.endswith("/v1") else ""
