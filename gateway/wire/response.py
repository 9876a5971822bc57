"""Responses and related resources."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from gateway.base.errors import GatewayError
from gateway.wire.common import JsonObject, Value, Wire, encode
from gateway.wire.items import Item
from gateway.wire.text import ReasoningOptions, TextConfig
from gateway.wire.timings import RequestMetrics, Timings
from gateway.wire.tools import Tool, ToolChoice

ResponseStatus: TypeAlias = Literal[
    "queued", "in_progress", "completed", "incomplete", "failed", "cancelled"
]
ServiceTier: TypeAlias = Literal[
    "auto", "default", "flex", "scale", "priority", "fast", "ultrafast"
]
RESPONSE_ERROR_CODES = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)
"""The values of `error.code` of a failed response in the official SDK. Any other code is sent as `server_error`."""


class InputTokensDetails(Value, frozen=True, kw_only=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    """Required by the SDK. Self-hosted prefix caches do not charge for writing."""
    input_tokens_per_turn: list[int] | UnsetType = UNSET
    """This field and the next ones, here and in the output's details, are vLLM's: one number for each generation, if
    the response has more than one."""
    cached_tokens_per_turn: list[int] | UnsetType = UNSET


class OutputTokensDetails(Value, frozen=True, kw_only=True):
    reasoning_tokens: int = 0
    tool_output_tokens: int | UnsetType = UNSET
    """Tokens that each prompt added after the previous output: results of the gateway's tools."""
    output_tokens_per_turn: list[int] | UnsetType = UNSET
    tool_output_tokens_per_turn: list[int] | UnsetType = UNSET


class Usage(Value, frozen=True, kw_only=True):
    """Token counts over all generations of a response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int


class ResponseError(Value, frozen=True, kw_only=True):
    """Why a response failed."""

    code: str
    message: str

    def __post_init__(self) -> None:
        if self.code not in RESPONSE_ERROR_CODES:
            msgspec.structs.force_setattr(self, "code", "server_error")


class IncompleteDetails(Value, frozen=True, kw_only=True):
    reason: Literal["max_output_tokens", "content_filter", "max_messages", "steered"]


class ConversationReference(Value, frozen=True, kw_only=True):
    id: str


class Response(Wire, kw_only=True):
    """A response. All fields except the last block are always sent, from `response.created` on.

    Open Responses 2026-04-24, `ResponseResource`: these 31 are required; `service_tier`, `top_logprobs`, `temperature`,
    `top_p`, `text`, `truncation`, `tools` and `tool_choice` are never null.
    """

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str
    output: list[Item] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: str | None = None
    service_tier: ServiceTier = "default"
    store: bool = True
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    text: TextConfig = TextConfig()
    tool_choice: ToolChoice = "auto"
    tools: list[Tool] = []
    top_logprobs: int = 0
    truncation: Literal["auto", "disabled"] = "disabled"
    usage: Usage | None = None
    metadata: dict[str, str] = {}

    user: str | UnsetType | None = UNSET
    conversation: ConversationReference | UnsetType = UNSET
    prompt_cache_retention: Literal["in_memory", "24h"] | UnsetType = UNSET
    prompt_cache_options: JsonObject | UnsetType = UNSET
    prompt: JsonObject | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET


def snapshot(response: Response) -> Response:
    """A shallow copy of the response with its own list of output items, which are immutable."""
    return msgspec.structs.replace(response, output=response.output.copy())


def mark_failed(response: Response, code: str, message: str) -> None:
    """Change a response to failed."""
    response.status = "failed"
    response.completed_at = None
    response.incomplete_details = None
    response.error = ResponseError(code=code, message=message)


class CompactedResponse(Wire, kw_only=True):
    """The answer of `/v1/responses/compact`."""

    id: str
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int
    output: list[Item]
    usage: Usage


class InputTokens(Value, frozen=True, kw_only=True):
    """The answer of `/v1/responses/input_tokens`."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


class Conversation(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str] = {}


ShownState: TypeAlias = Literal[
    "unloaded", "loading", "loaded", "unloading", "failed", "unavailable"
]
"""The state of a model. `unavailable` means that it is loaded but its engine cannot serve."""


class ModelObject(Value, frozen=True, kw_only=True):
    """A served model. `root` to `max_model_len` are vLLM's; these and the fields after them are omitted if unknown."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "litegate"
    root: str | UnsetType = UNSET
    parent: str | UnsetType | None = UNSET
    max_model_len: int | UnsetType = UNSET
    """Context length: the maximum number of tokens of prompt and output together."""
    aliases: list[str] | UnsetType = UNSET
    """Further names that requests may use."""
    description: str | UnsetType = UNSET
    capabilities: list[str] | UnsetType = UNSET
    """What requests may ask for: `generation`, `embeddings`, `images`, `json_schema`, `logprobs`, ..."""
    state: ShownState | UnsetType = UNSET


class ModelList(Value, frozen=True, kw_only=True):
    """`/v1/models`. `models` is Codex's own list, present if requested."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
    models: list[JsonObject] | UnsetType = UNSET


class ErrorBody(Value, frozen=True, kw_only=True):
    """An error as sent by every endpoint. `param` and `code` are always present."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None

    @classmethod
    def of(cls, error: GatewayError) -> ErrorBody:
        """The body of `error`, as clients read it."""
        return cls(message=error.message, type=error.type, param=error.param, code=error.code)


class ErrorEnvelope(Value, frozen=True, kw_only=True):
    error: ErrorBody


def error_body(error: GatewayError) -> bytes:
    """`error` in OpenAI's envelope."""
    return encode(ErrorEnvelope(error=ErrorBody.of(error)))
