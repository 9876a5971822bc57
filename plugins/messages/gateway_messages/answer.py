"""Response types. Those of server tools are in `gateway_messages.tool_answer`."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from gateway.sdk.wire import Tagged, Value
from gateway.sdk.wire import Usage as GatewayUsage
from gateway_messages.tool_answer import ToolAnswer

StopReason: TypeAlias = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]


class WebCitation(Tagged, frozen=True, kw_only=True, tag="web_search_result_location"):
    """The source of a text block. `encrypted_index` is meaningful to the server only."""

    cited_text: str
    url: str
    title: str | None
    encrypted_index: str


class TextContent(Tagged, frozen=True, kw_only=True, tag="text"):
    text: str
    citations: list[WebCitation] | None = None


class ThinkingContent(Tagged, frozen=True, kw_only=True, tag="thinking"):
    thinking: str
    signature: str


class ToolUseContent(Tagged, frozen=True, kw_only=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ServerToolUseContent(Tagged, frozen=True, kw_only=True, tag="server_tool_use"):
    id: str
    name: Literal["web_search", "web_fetch", "code_execution", "bash_code_execution"]
    input: dict[str, Any]


class McpToolUseContent(Tagged, frozen=True, kw_only=True, tag="mcp_tool_use"):
    id: str
    name: str
    server_name: str
    input: dict[str, Any]


Called: TypeAlias = ToolUseContent | ServerToolUseContent | McpToolUseContent
Content: TypeAlias = TextContent | ThinkingContent | Called | ToolAnswer


class ServerToolUsage(Value, frozen=True, kw_only=True):
    web_search_requests: int = 0
    web_fetch_requests: int = 0


class OutputTokensDetails(Value, frozen=True, kw_only=True):
    thinking_tokens: int = 0


class DeltaUsage(Value, frozen=True, kw_only=True):
    """Cumulative usage in `message_delta`. Tokens read from the cache are not part of `input_tokens`."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    server_tool_use: ServerToolUsage | None = None


class Usage(DeltaUsage, frozen=True, kw_only=True):
    service_tier: Literal["standard"] = "standard"


class Message(Value, frozen=True, kw_only=True):
    """A complete message; also its initial state, in `message_start`."""

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
    """How a message ended."""

    stop_reason: StopReason
    stop_sequence: str | None
    usage: GatewayUsage
    server_tools: ServerToolUsage | None = None
    hides_output: bool
    """Whether the generated output was not requested (`max_tokens` 0) and is hidden."""

    def counted(self) -> dict[str, Any]:
        """The usage fields."""
        cached = self.usage.input_tokens_details.cached_tokens
        thought = self.usage.output_tokens_details.reasoning_tokens
        return {
            "input_tokens": self.usage.input_tokens - cached,
            "cache_read_input_tokens": cached,
            "output_tokens": 0 if self.hides_output else self.usage.output_tokens,
            "output_tokens_details": OutputTokensDetails(
                thinking_tokens=0 if self.hides_output else thought
            ),
            "server_tool_use": self.server_tools,
        }
