"""The types of the chunks of a streamed chat completion, for the API description. `gateway.answers.chat.chunks` writes the
chunks."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from gateway.wire.chat import ChoiceLogprobs, CompletionUsage, FinishReason, UrlAnnotation
from gateway.wire.common import Value
from gateway.wire.response import ServiceTier
from gateway.wire.timings import RequestMetrics, Timings


class FunctionDelta(Value, frozen=True, kw_only=True):
    """A part of a call of a function."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class CustomDelta(Value, frozen=True, kw_only=True):
    """A part of a call of a custom tool."""

    name: str | UnsetType = UNSET
    input: str | UnsetType = UNSET


class ToolCallDelta(Value, frozen=True, kw_only=True):
    """A part of a tool call. The first of each call has its id, its type and its name."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function", "custom"] | UnsetType = UNSET
    function: FunctionDelta | UnsetType = UNSET
    custom: CustomDelta | UnsetType = UNSET


class ChoiceDelta(Value, frozen=True, kw_only=True):
    """What a chunk adds to the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    annotations: list[UrlAnnotation] | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    function_call: FunctionDelta | UnsetType = UNSET


class ChunkChoice(Value, frozen=True, kw_only=True):
    """What a chunk adds to one choice. The fields after `finish_reason` are vLLM's, present if requested."""

    index: int
    delta: ChoiceDelta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(Value, frozen=True, kw_only=True):
    """One chunk of a streamed chat completion. After a failure, an object with `error` is sent instead."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    service_tier: ServiceTier | UnsetType = UNSET
    system_fingerprint: str | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
