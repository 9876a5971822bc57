"""The request body of `POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from gateway.sdk import InvalidRequest, ParamPath, Unsupported, param_text
from gateway.sdk.wire import (
    MAX_INT,
    MAX_TOOLS,
    JsonObject,
    SharedParameters,
    Stops,
    Tagged,
    ToolName,
    Value,
    check_length,
    convert,
    decode_object,
    missing,
    shortened,
    unknown_names,
    wrong_type,
)
from gateway_messages.blocks import MessageParam, decode_messages, decode_system
from gateway_messages.parameters import MESSAGES
from gateway_messages.server_tools import (
    McpServer,
    ServerEntry,
    ToolEntry,
    ToolsetEntry,
    decode_server_tool,
)

MIN_BUDGET = 1024
"""Minimum `budget_tokens` of the API."""

Display: TypeAlias = Literal["summarized", "omitted", "updates"]
"""Whether thinking is shown. Summaries and progress reports do not exist here."""


class ThinkingEnabled(Tagged, frozen=True, kw_only=True, tag="enabled"):
    budget_tokens: Annotated[int, Meta(ge=MIN_BUDGET, le=MAX_INT)]
    display: Display | None = None


class ThinkingDisabled(Tagged, frozen=True, kw_only=True, tag="disabled"):
    pass


class ThinkingAdaptive(Tagged, frozen=True, kw_only=True, tag="adaptive"):
    display: Display | None = None


class ThinkingBetweenTools(Tagged, frozen=True, kw_only=True, tag="between_tools"):
    pass


Thinking: TypeAlias = ThinkingEnabled | ThinkingDisabled | ThinkingAdaptive | ThinkingBetweenTools


class AutoChoice(Tagged, frozen=True, kw_only=True, tag="auto"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Tagged, frozen=True, kw_only=True, tag="any"):
    disable_parallel_tool_use: bool | None = None


class ToolChoice(Tagged, frozen=True, kw_only=True, tag="tool"):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Tagged, frozen=True, kw_only=True, tag="none"):
    pass


Choice: TypeAlias = AutoChoice | AnyChoice | ToolChoice | NoChoice


class Tool(ToolEntry, frozen=True, kw_only=True, tag=True):
    """A tool that the client runs."""

    name: ToolName
    input_schema: JsonObject
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    """Whether the model is told of the tool only once a `tool_reference` names it."""


class JsonSchemaFormat(Tagged, frozen=True, kw_only=True, tag="json_schema"):
    schema: JsonObject


class OutputConfig(Value, frozen=True, kw_only=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonSchemaFormat | None = None


class Metadata(Value, frozen=True, kw_only=True):
    user_id: str | None = None


class MessagesRequest(SharedParameters, kw_only=True, omit_defaults=True, dict=True):
    """None means that the field was missing or null."""

    model: str
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    messages: list[MessageParam] = []
    system: list[str] = []
    stream: bool | None = None
    stop_sequences: Stops | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    thinking: Thinking | None = None
    tools: list[Tool | ServerEntry] = []
    tool_choice: Choice | None = None
    metadata: Metadata | None = None
    output_config: OutputConfig | None = None
    output_format: JsonSchemaFormat | None = None
    """The beta version of `output_config.format`."""
    service_tier: Literal["auto", "standard_only"] | None = None

    mcp_servers: list[McpServer] = []

    # Ignored, or refused: see `gateway_messages.parameters`.
    cache_control: Any = None
    container: Any = None
    context_management: Any = None
    billing_policy: Any = None
    compaction: Any = None
    diagnostics: Any = None
    fallback_credit_token: Any = None
    fallbacks: Any = None
    inference_geo: Any = None
    speed: Any = None
    thread: Any = None


def decode_request(body: bytes, *, counts: bool = False) -> MessagesRequest:
    """Decode a body.

    Raises `InvalidRequest`, whose `param` is the path of the error. `counts` is true for token counting.
    """
    raw = decode_object(body)
    given = {key: value for key, value in raw.items() if value is not None}
    sent = {name: given.pop(name, None) for name in ("messages", "system", "tools")}
    request = convert(given, MessagesRequest)
    if request.max_tokens is None and not counts:
        raise missing("max_tokens", "It is the maximum number of tokens to generate.")
    if sent["messages"] is None:
        raise missing("messages", "Send a list of messages.")
    request.messages = decode_messages(sent["messages"])
    if not request.messages:
        raise InvalidRequest("'messages' is empty. Send at least one message.", param="messages")
    if sent["system"] is not None:
        request.system = decode_system(sent["system"])
    if sent["tools"] is not None:
        request.tools = _tools(sent["tools"])
    MESSAGES.refuse(given, but=("compaction",) if counts else ())
    _check(request)
    if not raw.keys() <= MESSAGES.known:
        request.unknown.extend(unknown_names(raw, MESSAGES.known))
    return request


def _check(request: MessagesRequest) -> None:
    for index, sequence in enumerate(request.stop_sequences or ()):
        if not sequence.strip():
            raise InvalidRequest(
                "A stop sequence is more than white space.", param=("stop_sequences", index)
            )
    thinking = request.thinking
    if (
        isinstance(thinking, ThinkingEnabled)
        and request.max_tokens is not None
        and thinking.budget_tokens >= request.max_tokens
    ):
        raise InvalidRequest(
            "'max_tokens' must be greater than 'thinking.budget_tokens'.", param="max_tokens"
        )
    config = request.output_config
    if request.output_format is not None and config is not None and config.format is not None:
        raise InvalidRequest(
            "'output_format' is the older name of 'output_config.format'. Send one of them.",
            param="output_format",
        )


def _tools(raw: Any) -> list[Tool | ServerEntry]:
    if not isinstance(raw, list):
        raise wrong_type("tools", "an array of tools", raw)
    check_length(raw, "tools", MAX_TOOLS)
    tools: list[Tool | ServerEntry] = []
    names: set[str] = set()
    for index, each in enumerate(raw):
        param = ("tools", index)
        tool = _tool(each, param)
        tools.append(tool)
        if isinstance(tool, ToolsetEntry):
            continue
        if tool.name in names:
            raise InvalidRequest(
                f"Two tools are named '{tool.name}'. Give each its own name.",
                param=(*param, "name"),
            )
        names.add(tool.name)
    return tools


def _tool(raw: Any, param: ParamPath) -> Tool | ServerEntry:
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    if (served := decode_server_tool(raw, param)) is not None:
        return served
    kind = raw.get("type")
    if kind not in (None, "custom"):
        raise Unsupported(
            f"Tools of type '{shortened(kind)}' are not available here. Give the tool a name, a description and an "
            "input_schema, and run it yourself.",
            param=(*param, "type"),
        )
    tool = convert(raw, Tool, param)
    if tool.input_schema.get("type") != "object":
        raise InvalidRequest(
            f"'{param_text(param)}.input_schema.type' must be 'object'.",
            param=(*param, "input_schema", "type"),
        )
    return tool
