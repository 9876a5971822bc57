"""Tools and `tool_choice`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.wire.common import JsonObject, Tagged, Value
from gateway.wire.common import type_of as type_of
from gateway.wire.decoding import convert, members, one_of
from gateway.wire.field_errors import (
    MAX_TOOLS,
    check_length,
    missing,
    not_among,
    shortened,
    wrong_type,
)

ToolName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"\A[a-zA-Z0-9_.-]+\Z")
]
"""The characters that OpenAI allows, and the dot, which self-hosted MCP tools use. Restricted because the name is
inserted into prompts."""
AllowedCallers: TypeAlias = list[Literal["direct", "programmatic"]]


class FunctionTool(Tagged, frozen=True, kw_only=True, tag="function"):
    """A function that the client runs. The first four fields are always echoed."""

    name: ToolName
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    output_schema: JsonObject | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: AllowedCallers | UnsetType = UNSET
    async_: bool | UnsetType = msgspec.field(name="async", default=UNSET)


class CustomTextFormat(Tagged, frozen=True, kw_only=True, tag="text"):
    """Unconstrained text."""


class CustomGrammarFormat(Tagged, frozen=True, kw_only=True, tag="grammar"):
    """Text that fits a grammar."""

    syntax: Literal["lark", "regex"]
    definition: str


CustomFormat: TypeAlias = CustomTextFormat | CustomGrammarFormat


class CustomTool(Tagged, frozen=True, kw_only=True, tag="custom"):
    """A tool whose input is free text; the client runs it."""

    name: ToolName
    description: str | UnsetType = UNSET
    format: CustomFormat | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: AllowedCallers | UnsetType = UNSET
    async_: bool | UnsetType = msgspec.field(name="async", default=UNSET)


class NamespaceTool(Tagged, frozen=True, kw_only=True, tag="namespace"):
    """Tools of the client under a common name (Codex sends its MCP servers this way)."""

    name: ToolName
    description: str = ""
    tools: list[FunctionTool | CustomTool]


class McpToolFilter(Value, frozen=True, kw_only=True):
    tool_names: list[str] | UnsetType = UNSET
    read_only: bool | UnsetType = UNSET


class McpApprovalFilter(Value, frozen=True, kw_only=True):
    always: McpToolFilter | UnsetType = UNSET
    never: McpToolFilter | UnsetType = UNSET


class McpTool(Tagged, frozen=True, kw_only=True, tag="mcp"):
    """Tools of an MCP server, run by the gateway."""

    server_label: str
    server_url: str | UnsetType = UNSET
    connector_id: str | UnsetType = UNSET
    tunnel_id: str | UnsetType = UNSET
    server_description: str | UnsetType = UNSET
    authorization: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    allowed_tools: list[str] | McpToolFilter | UnsetType = UNSET
    require_approval: McpApprovalFilter | Literal["always", "never"] | UnsetType = UNSET
    defer_loading: bool | UnsetType = UNSET
    allowed_callers: AllowedCallers | UnsetType = UNSET


class UserLocation(Value, frozen=True, kw_only=True):
    type: Literal["approximate"] = "approximate"
    city: str | UnsetType = UNSET
    country: str | UnsetType = UNSET
    region: str | UnsetType = UNSET
    timezone: str | UnsetType = UNSET


class WebSearchFilters(Value, frozen=True, kw_only=True):
    allowed_domains: list[str] | UnsetType = UNSET
    blocked_domains: list[str] | UnsetType = UNSET
    """Documented by OpenAI, though the SDK's types do not have it."""


class WebSearchTool(Tagged, frozen=True, kw_only=True, tag="web_search"):
    """Web search. Dated and preview variants are subclasses, so that a response echoes the type of the request."""

    filters: WebSearchFilters | UnsetType = UNSET
    user_location: UserLocation | UnsetType = UNSET
    search_context_size: Literal["low", "medium", "high"] | UnsetType = UNSET
    search_content_types: list[Literal["text", "image"]] | UnsetType = UNSET
    external_web_access: bool | UnsetType = UNSET


class WebSearchTool20250826(WebSearchTool, frozen=True, kw_only=True, tag="web_search_2025_08_26"):
    pass


class WebSearchPreviewTool(WebSearchTool, frozen=True, kw_only=True, tag="web_search_preview"):
    pass


class WebSearchPreviewTool20250311(
    WebSearchTool, frozen=True, kw_only=True, tag="web_search_preview_2025_03_11"
):
    pass


class HybridSearch(Value, frozen=True, kw_only=True):
    embedding_weight: float
    text_weight: float


class RankingOptions(Value, frozen=True, kw_only=True):
    ranker: str | UnsetType = UNSET
    score_threshold: float | UnsetType = UNSET
    hybrid_search: HybridSearch | UnsetType = UNSET


class FileSearchTool(Tagged, frozen=True, kw_only=True, tag="file_search"):
    vector_store_ids: list[str]
    filters: JsonObject | UnsetType = UNSET
    max_num_results: Annotated[int, Meta(ge=1, le=50)] | UnsetType = UNSET
    ranking_options: RankingOptions | UnsetType = UNSET


class AutoContainer(Tagged, frozen=True, kw_only=True, tag="auto"):
    """A container made for this response."""

    file_ids: list[str] | UnsetType = UNSET
    memory_limit: Literal["1g", "4g", "16g", "64g"] | UnsetType = UNSET
    network_policy: JsonObject | UnsetType = UNSET


class CodeInterpreterTool(Tagged, frozen=True, kw_only=True, tag="code_interpreter"):
    """Python, run by the gateway. `container` is an id, or describes a new container."""

    container: str | AutoContainer = msgspec.field(default_factory=AutoContainer)
    allowed_callers: AllowedCallers | UnsetType = UNSET


class ShellTool(Tagged, frozen=True, kw_only=True, tag="shell"):
    """A shell. If `environment` is local, the client runs the commands."""

    environment: JsonObject | UnsetType = UNSET
    allowed_callers: AllowedCallers | UnsetType = UNSET


class LocalShellTool(Tagged, frozen=True, kw_only=True, tag="local_shell"):
    pass


class ApplyPatchTool(Tagged, frozen=True, kw_only=True, tag="apply_patch"):
    allowed_callers: AllowedCallers | UnsetType = UNSET


class ToolSearchTool(Tagged, frozen=True, kw_only=True, tag="tool_search"):
    description: str | UnsetType = UNSET
    execution: Literal["server", "client"] | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET


class ComputerTool(Tagged, frozen=True, kw_only=True, tag="computer"):
    pass


class ComputerUsePreviewTool(Tagged, frozen=True, kw_only=True, tag="computer_use_preview"):
    display_width: int
    display_height: int
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]


class ProgrammaticToolCallingTool(
    Tagged, frozen=True, kw_only=True, tag="programmatic_tool_calling"
):
    pass


class ImageGenerationTool(Tagged, frozen=True, kw_only=True, tag="image_generation"):
    """Defined so that it can be rejected by name, or echoed by a plugin that implements it."""

    action: Literal["generate", "edit", "auto"] | UnsetType = UNSET
    background: Literal["transparent", "opaque", "auto"] | UnsetType = UNSET
    complexity: Literal["low", "medium", "high"] | UnsetType = UNSET
    frame_count: int | UnsetType = UNSET
    frame_duration_ms: int | UnsetType = UNSET
    input_fidelity: Literal["high", "low"] | UnsetType = UNSET
    input_image_mask: JsonObject | UnsetType = UNSET
    model: str | UnsetType = UNSET
    moderation: Literal["auto", "low"] | UnsetType = UNSET
    output_compression: int | UnsetType = UNSET
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | UnsetType = UNSET
    partial_images: int | UnsetType = UNSET
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | UnsetType = UNSET
    size: str | UnsetType = UNSET
    svg: JsonObject | UnsetType = UNSET


Tool: TypeAlias = (
    FunctionTool
    | CustomTool
    | NamespaceTool
    | McpTool
    | WebSearchTool
    | WebSearchTool20250826
    | WebSearchPreviewTool
    | WebSearchPreviewTool20250311
    | FileSearchTool
    | CodeInterpreterTool
    | ShellTool
    | LocalShellTool
    | ApplyPatchTool
    | ToolSearchTool
    | ComputerTool
    | ComputerUsePreviewTool
    | ProgrammaticToolCallingTool
    | ImageGenerationTool
)


# tool_choice


class FunctionChoice(Tagged, frozen=True, kw_only=True, tag="function"):
    name: str


class CustomChoice(Tagged, frozen=True, kw_only=True, tag="custom"):
    name: str


class McpChoice(Tagged, frozen=True, kw_only=True, tag="mcp"):
    server_label: str
    name: str | None = None


class AllowedToolsChoice(Tagged, frozen=True, kw_only=True, tag="allowed_tools"):
    """The model may use these tools only. The prompt still lists all tools, so that its prefix stays cached."""

    mode: Literal["auto", "required"]
    tools: list[JsonObject]


class HostedChoice(Tagged, frozen=True, kw_only=True, tag="hosted"):
    """Base of the choices that name a built-in tool by its type only. Not used on the wire itself."""


class FileSearchChoice(HostedChoice, frozen=True, kw_only=True, tag="file_search"):
    pass


class WebSearchChoice(HostedChoice, frozen=True, kw_only=True, tag="web_search"):
    pass


class WebSearchChoice20250826(HostedChoice, frozen=True, kw_only=True, tag="web_search_2025_08_26"):
    pass


class WebSearchPreviewChoice(HostedChoice, frozen=True, kw_only=True, tag="web_search_preview"):
    pass


class WebSearchPreviewChoice20250311(
    HostedChoice, frozen=True, kw_only=True, tag="web_search_preview_2025_03_11"
):
    pass


class CodeInterpreterChoice(HostedChoice, frozen=True, kw_only=True, tag="code_interpreter"):
    pass


class ImageGenerationChoice(HostedChoice, frozen=True, kw_only=True, tag="image_generation"):
    pass


class ComputerChoice(HostedChoice, frozen=True, kw_only=True, tag="computer"):
    pass


class ComputerUseChoice(HostedChoice, frozen=True, kw_only=True, tag="computer_use"):
    pass


class ComputerUsePreviewChoice(HostedChoice, frozen=True, kw_only=True, tag="computer_use_preview"):
    pass


class ShellChoice(HostedChoice, frozen=True, kw_only=True, tag="shell"):
    pass


class LocalShellChoice(HostedChoice, frozen=True, kw_only=True, tag="local_shell"):
    pass


class ApplyPatchChoice(HostedChoice, frozen=True, kw_only=True, tag="apply_patch"):
    pass


class ProgrammaticToolCallingChoice(
    HostedChoice, frozen=True, kw_only=True, tag="programmatic_tool_calling"
):
    pass


ToolChoiceMode: TypeAlias = Literal["none", "auto", "required"]
ToolChoiceObject: TypeAlias = (
    FunctionChoice
    | CustomChoice
    | McpChoice
    | AllowedToolsChoice
    | FileSearchChoice
    | WebSearchChoice
    | WebSearchChoice20250826
    | WebSearchPreviewChoice
    | WebSearchPreviewChoice20250311
    | CodeInterpreterChoice
    | ImageGenerationChoice
    | ComputerChoice
    | ComputerUseChoice
    | ComputerUsePreviewChoice
    | ShellChoice
    | LocalShellChoice
    | ApplyPatchChoice
    | ProgrammaticToolCallingChoice
)
ToolChoice: TypeAlias = ToolChoiceMode | ToolChoiceObject

TOOLS: dict[str, type[Tool]] = members(Tool)
CHOICES: dict[str, type[ToolChoiceObject]] = members(ToolChoiceObject)
_MODES = ("none", "auto", "required")


def decode_tools(raw: Any, param: ParamPath = ("tools",)) -> list[Tool]:
    """Decode a request's tools from plain JSON. Raises `InvalidRequest` with the precise parameter."""
    if not isinstance(raw, list):
        raise wrong_type(param, "an array of tools", raw)
    check_length(raw, param, MAX_TOOLS)
    return [_decode_tool(tool, (*param, index)) for index, tool in enumerate(raw)]


def _decode_tool(raw: Any, param: ParamPath) -> Tool:
    cls = one_of(TOOLS, raw, param)
    _refuse_chat_form(raw, param)
    return convert(raw, cls, param)


def decode_tool_choice(raw: Any, param: ParamPath = ("tool_choice",)) -> ToolChoice:
    """Decode a request's `tool_choice` from plain JSON. Raises `InvalidRequest` with the precise parameter."""
    if isinstance(raw, str):
        if raw in _MODES:
            return raw  # type: ignore[return-value]  # one of the three, as just tested
        raise InvalidRequest(
            f"Invalid value: '{shortened(raw)}'. Supported values are: 'none', 'auto', 'required', "
            "or an object that names a tool.",
            param=param,
            code="invalid_value",
        )
    if not isinstance(raw, dict):
        raise wrong_type(param, "a string or an object", raw)
    cls = one_of(CHOICES, raw, param)
    _refuse_chat_form(raw, param)
    choice = convert(raw, cls, param)
    if isinstance(choice, AllowedToolsChoice):
        for index, entry in enumerate(choice.tools):
            _check_allowed(entry, (*param, "tools", index))
    return choice


def _check_allowed(entry: JsonObject, param: ParamPath) -> None:
    """Check the type of an allowed tool. It may be omitted, since the name is sufficient."""
    kind = entry.get("type")
    if kind is None:
        return
    if not isinstance(kind, str):
        raise wrong_type((*param, "type"), "a string", kind)
    if kind not in TOOLS and kind not in CHOICES:
        raise not_among((*param, "type"), kind, TOOLS)


def _refuse_chat_form(raw: JsonObject, param: ParamPath) -> None:
    """Reject the nested form of Chat Completions, with an explanation of the right form."""
    kind = raw["type"]
    if kind in ("function", "custom") and "name" not in raw and isinstance(raw.get(kind), dict):
        raise missing(
            (*param, "name"),
            f'The Responses API takes the flat form {{"type": "{kind}", "name": …}}; a nested \'{kind}\' object is of '
            "Chat Completions.",
        )


def chosen_name(choice: ToolChoiceObject) -> str | None:
    """The name of the tool that a choice names; None if it names a type, a server or a list."""
    if isinstance(choice, FunctionChoice | CustomChoice | McpChoice):
        return choice.name
    return None
