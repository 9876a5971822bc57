"""The configuration of the `openai` engine."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from gateway_remote.config import PoolConfig, Positive, Seconds

Api: TypeAlias = Literal["chat", "responses"]
ReasoningField: TypeAlias = Literal["reasoning_content", "reasoning"]
Extension: TypeAlias = Literal[
    "top_k",
    "min_p",
    "repetition_penalty",
    "min_tokens",
    "stop_token_ids",
    "bad_words",
    "ignore_eos",
    "include_stop_str_in_output",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "stop",
    "cache_salt",
    "priority",
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
"""What Chat Completions has beyond the Responses API, and so is no extension there."""


class Takes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`takes`: what the upstream can do. What it cannot is refused here with a 400 that names the parameter."""

    tools: bool = True
    parallel_tools: bool = True
    """Whether it knows `parallel_tool_calls`; where not, the gateway itself takes only the first call."""
    custom_tools: bool | None = None
    """Free-text tools. Where not, it is told of a function with one string. Left out: in the Responses API alone."""
    json_schema: bool = True
    json_object: bool = True
    logprobs: bool = True
    images: bool = True
    files: bool = True
    audio: bool = True
    reasoning_effort: bool = True


class OpenAIConfig(PoolConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<model>.openai]`. Times are in seconds."""

    base_url: str | None = None
    """As OpenAI's SDKs take it, with the `/v1`: `https://host/v1`. Replicas are named by `urls`, `dns` or `file`."""
    api: Api = "chat"
    """Which API of the upstream is used: Chat Completions or Responses."""
    model: str | None = None
    """The upstream's name of the model; left out, the same as here."""
    max_model_len: Positive | None = None
    """Tokens of prompt and output together, for people and clients; left out, what the upstream lists."""
    task: Literal["generate", "embed", "both"] = "generate"
    """What the upstream does with the model."""
    takes: Takes = Takes()
    extensions: tuple[Extension, ...] = ()
    """Parameters beyond the API that the upstream takes, under vLLM's names."""
    forward: tuple[Hint, ...] = (
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
        "verbosity",
        "reasoning_summary",
    )
    """What clients say of how they want to be served that is passed on; the rest stays here."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """How Chat Completions is told the limit of the output."""
    instructions_role: Literal["system", "developer"] = "system"
    """As which role Chat Completions is told instructions and messages of the developer."""
    reasoning_fields: tuple[ReasoningField, ...] = ("reasoning_content", "reasoning")
    """Where Chat Completions shows reasoning; the first that is there counts."""
    send_reasoning: bool = True
    """Whether earlier reasoning is sent back: in Chat Completions in the first of `reasoning_fields`."""
    stream_usage: bool = True
    """Whether Chat Completions is asked for usage by `stream_options`. Without it tokens are not counted."""
    extra_body: dict[str, Any] = {}
    """Further fields of every request's body; they win over what the gateway writes."""
    health_path: str = "/models"
    """Asked of each replica, below the base URL; an empty one: replicas are judged by their requests alone."""
    health_interval: Seconds = 10.0
    health_timeout: Seconds = 5.0
    affinity_block: Positive = 128
    """Bytes of the messages that are compared at once."""

    def __post_init__(self) -> None:
        if not self.reasoning_fields:
            raise ValueError('reasoning_fields names no field; the default has "reasoning_content"')
        for name in ("model", "messages", "input", "stream"):
            if name in self.extra_body:
                raise ValueError(f"extra_body cannot set {name!r}")
        styles = {_prefix(url) for url in (self.base_url, self.dns, *self.urls) if url}
        if len(styles) > 1:
            raise ValueError("some of the upstream's addresses end with /v1, and some do not")

    @property
    def custom_tools(self) -> bool:
        """Whether the upstream takes free-text tools."""
        told = self.takes.custom_tools
        return self.api == "responses" if told is None else told

    def extends(self, name: str) -> bool:
        """Whether the upstream takes this parameter."""
        return name in self.extensions or (self.api == "chat" and name in OF_CHAT)

    def prefix(self, path: str | None) -> str:
        """What the routes begin with, after what the pool takes for an address (which has no `/v1`).

        `path` is the model's, where that is an address.
        """
        addresses = [url for url in (self.base_url, self.dns, *self.urls, path) if url]
        return _prefix(addresses[0]) if addresses else "/v1"


def _prefix(url: str) -> str:
    path = urlsplit(url.strip()).path.rstrip("/")
    return "/v1" if path in ("", "/v1") or path.endswith("/v1") else ""
