"""The answer's types, as they are sent."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from gateway.wire.common import Tagged, Value
from gateway.wire.response import Usage as GatewayUsage

StopReason: TypeAlias = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "refusal",
    "model_context_window_exceeded",
]


class TextContent(Tagged, frozen=True, kw_only=True, tag="text"):
    text: str
    citations: None = None


class ThinkingContent(Tagged, frozen=True, kw_only=True, tag="thinking"):
    thinking: str
    signature: str


class ToolUseContent(Tagged, frozen=True, kw_only=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


Content: TypeAlias = TextContent | ThinkingContent | ToolUseContent


class OutputTokensDetails(Value, frozen=True, kw_only=True):
    thinking_tokens: int = 0


class DeltaUsage(Value, frozen=True, kw_only=True):
    """What `message_delta` tells, in all. What was read from the cache is not part of `input_tokens`."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()


class Usage(DeltaUsage, frozen=True, kw_only=True):
    service_tier: Literal["standard"] = "standard"


class Message(Value, frozen=True, kw_only=True):
    """A whole answer; also its beginning, in `message_start`."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Content] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    stop_details: None = None
    container: None = None
    usage: Usage


class End(Struct, frozen=True, kw_only=True):
    """How an answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    usage: GatewayUsage
    hides_output: bool
    """Whether what was generated was not asked for."""

    def counted(self) -> dict[str, Any]:
        """The fields of a usage."""
        cached = self.usage.input_tokens_details.cached_tokens
        thought = self.usage.output_tokens_details.reasoning_tokens
        return {
            "input_tokens": self.usage.input_tokens - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": 0 if self.hides_output else self.usage.output_tokens,
            "output_tokens_details": OutputTokensDetails(
                thinking_tokens=0 if self.hides_output else thought
            ),
        }
