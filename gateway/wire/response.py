"""Responses, and the small resources around them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.common import JsonObject, Value, Wire
from gateway.wire.items import Item
from gateway.wire.text import Reasoning, TextConfig
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
"""What `error.code` of a failed response may be, as the official SDK has it; any other is sent as `server_error`."""


class InputTokensDetails(Value, frozen=True, kw_only=True):
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    """Required by the SDK; a prefix cache at home has no separate price for writing."""


class OutputTokensDetails(Value, frozen=True, kw_only=True):
    reasoning_tokens: int = 0


class Usage(Value, frozen=True, kw_only=True):
    """Tokens, over all generations of a response."""

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
    """A response. All fields but the last block are sent always, from `response.created` on.

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
    reasoning: Reasoning | None = None
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


def snapshot(response: Response) -> Response:
    """The response as it is now: a shallow copy with its own list of output items, which are themselves immutable."""
    return msgspec.structs.replace(response, output=response.output.copy())


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


class ItemList(Value, frozen=True, kw_only=True):
    """A page of items. `first_id` and `last_id` are null where there are none."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class DeletedResponse(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["response.deleted"] = "response.deleted"
    deleted: bool = True


class Conversation(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: dict[str, str] = {}


class DeletedConversation(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class ModelObject(Value, frozen=True, kw_only=True):
    """A model that is served; what comes after `owned_by` is vLLM's, and left out where it is not known."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "litegate"
    root: str | UnsetType = UNSET
    parent: str | UnsetType | None = UNSET
    max_model_len: int | UnsetType = UNSET


class ModelList(Value, frozen=True, kw_only=True):
    """`/v1/models`. `models` is Codex's own list, where it is asked for."""

    object: Literal["list"] = "list"
    data: list[ModelObject]
    models: list[JsonObject] | UnsetType = UNSET


class ErrorBody(Value, frozen=True, kw_only=True):
    """An error as every endpoint tells it; `param` and `code` are always there."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(Value, frozen=True, kw_only=True):
    error: ErrorBody


def item_list(data: list[Item], *, has_more: bool) -> ItemList:
    """A page with its first and last ids."""
    return ItemList(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )


def decode_response(raw: bytes) -> Response:
    """A response that `encode` wrote, as a store has it."""
    return _DECODER.decode(raw)


_DECODER = msgspec.json.Decoder(Response)
