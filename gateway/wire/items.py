"""Items, the elements of conversations. One Struct per item type, for input and output alike."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from gateway.wire.common import ItemStatus, JsonObject, Phase, ReasoningEffort, Tagged, Value
from gateway.wire.content import (
    AgentContent,
    ComputerScreenshot,
    MessageContent,
    OutputText,
    ReasoningText,
    SummaryText,
    ToolOutputContent,
    text_of,
)
from gateway.wire.decoding import members
from gateway.wire.text import TextFormat
from gateway.wire.tools import Tool

Role: TypeAlias = Literal["user", "assistant", "system", "developer"]


class ItemBase(Tagged, frozen=True, kw_only=True):
    """Base of all items. `id` is empty if the client sent none, until the request is planned."""

    id: str = ""


class DirectCaller(Tagged, frozen=True, kw_only=True, tag="direct"):
    """The model called the tool itself."""


class ProgramCaller(Tagged, frozen=True, kw_only=True, tag="program"):
    """A program that the model wrote called the tool."""

    caller_id: str


Caller: TypeAlias = DirectCaller | ProgramCaller


class Message(ItemBase, frozen=True, kw_only=True, tag="message"):
    """A message of any role. `content` is always a list of parts; `decode_items` converts a plain string."""

    status: ItemStatus = "completed"
    role: Role
    content: list[MessageContent]
    phase: Phase | UnsetType = UNSET

    @property
    def text(self) -> str:
        """The concatenated text of the parts."""
        return text_of(self.content)


class Reasoning(ItemBase, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning. Missing text and encrypted content are omitted, because null breaks clients."""

    summary: list[SummaryText] = []
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    status: ItemStatus | UnsetType = UNSET


class FunctionCall(ItemBase, frozen=True, kw_only=True, tag="function_call"):
    """A call of a function that the client runs; `arguments` is JSON text as the model wrote it."""

    status: ItemStatus = "completed"
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET
    caller: Caller | UnsetType = UNSET
    async_: bool | UnsetType = msgspec.field(name="async", default=UNSET)
    encrypted_function_args: list[str] | UnsetType = UNSET
    """Names of the arguments that the server encrypted. This server encrypts none, so the list is empty. Present on
    calls of a tool whose schema marks arguments as encrypted."""
    created_by: str | UnsetType = UNSET


class FunctionCallOutput(ItemBase, frozen=True, kw_only=True, tag="function_call_output"):
    """The result of a function that the client ran. Without a `call_id`, it has the `name` of a tool whose result
    belongs to no call of the conversation."""

    status: ItemStatus = "completed"
    call_id: str | None = None
    output: str | list[ToolOutputContent]
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    caller: Caller | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


class CustomToolCall(ItemBase, frozen=True, kw_only=True, tag="custom_tool_call"):
    """A call of a free-text tool that the client runs."""

    status: ItemStatus = "completed"
    call_id: str
    name: str
    input: str
    namespace: str | UnsetType = UNSET
    caller: Caller | UnsetType = UNSET
    async_: bool | UnsetType = msgspec.field(name="async", default=UNSET)
    created_by: str | UnsetType = UNSET


class CustomToolCallOutput(ItemBase, frozen=True, kw_only=True, tag="custom_tool_call_output"):
    status: ItemStatus = "completed"
    call_id: str
    output: str | list[ToolOutputContent]
    caller: Caller | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


# Run by the gateway.


class McpProtocolError(Tagged, frozen=True, kw_only=True, tag="mcp_protocol_error"):
    code: int
    message: str


class McpToolExecutionError(Tagged, frozen=True, kw_only=True, tag="mcp_tool_execution_error"):
    """The tool reported a failure; `content` is the MCP content of its answer."""

    content: Any


class HttpError(Tagged, frozen=True, kw_only=True, tag="http_error"):
    code: int
    message: str


McpError: TypeAlias = McpProtocolError | McpToolExecutionError | HttpError


class McpCall(ItemBase, frozen=True, kw_only=True, tag="mcp_call"):
    """A call of an MCP tool, or of a function that the gateway runs.

    A plain string as `error` (older SDKs') becomes an `mcp_tool_execution_error` with that text.
    """

    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] = "completed"
    approval_request_id: str | None = None
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: McpError | str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.error, str):
            converted = McpToolExecutionError(content=[{"type": "text", "text": self.error}])
            msgspec.structs.force_setattr(self, "error", converted)


class McpListedTool(Value, frozen=True, kw_only=True):
    """Fields that the server does not set are omitted: the Vercel AI SDK does not accept null here."""

    name: str
    description: str | UnsetType = UNSET
    input_schema: Any
    annotations: JsonObject | UnsetType = UNSET


class McpListTools(ItemBase, frozen=True, kw_only=True, tag="mcp_list_tools"):
    server_label: str
    tools: list[McpListedTool]
    error: str | UnsetType = UNSET


class McpApprovalRequest(ItemBase, frozen=True, kw_only=True, tag="mcp_approval_request"):
    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(ItemBase, frozen=True, kw_only=True, tag="mcp_approval_response"):
    approval_request_id: str
    approve: bool
    reason: str | None = None


class UrlSource(Tagged, frozen=True, kw_only=True, tag="url"):
    url: str


class SearchAction(Tagged, frozen=True, kw_only=True, tag="search"):
    query: str | UnsetType = UNSET
    queries: list[str] | UnsetType = UNSET
    sources: list[UrlSource] | UnsetType = UNSET


class OpenPageAction(Tagged, frozen=True, kw_only=True, tag="open_page"):
    url: str | None = None


class FindInPageAction(Tagged, frozen=True, kw_only=True, tag="find_in_page"):
    url: str
    pattern: str


WebSearchAction: TypeAlias = SearchAction | OpenPageAction | FindInPageAction


class WebSearchCall(ItemBase, frozen=True, kw_only=True, tag="web_search_call"):
    status: Literal["in_progress", "searching", "completed", "failed", "incomplete"] = "completed"
    action: WebSearchAction = SearchAction()
    """Has a default because clients with older types send the call back without it."""


class FileSearchResult(Value, frozen=True, kw_only=True):
    file_id: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET
    score: float | UnsetType = UNSET
    text: str | UnsetType = UNSET
    attributes: JsonObject | None = None


class FileSearchCall(ItemBase, frozen=True, kw_only=True, tag="file_search_call"):
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"] = "completed"
    queries: list[str]
    results: list[FileSearchResult] | None = None


class InterpreterLogs(Tagged, frozen=True, kw_only=True, tag="logs"):
    logs: str


class InterpreterImage(Tagged, frozen=True, kw_only=True, tag="image"):
    url: str


InterpreterOutput: TypeAlias = InterpreterLogs | InterpreterImage


class CodeInterpreterCall(ItemBase, frozen=True, kw_only=True, tag="code_interpreter_call"):
    """Code that the gateway runs. `outputs` is null unless the request includes them."""

    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"] = (
        "completed"
    )
    container_id: str
    code: str | None = None
    outputs: list[InterpreterOutput] | None = None


# Run by the client.


class LocalShellAction(Tagged, frozen=True, kw_only=True, tag="exec"):
    """Fields that are not set are omitted: the Vercel AI SDK does not accept null here."""

    command: list[str]
    env: dict[str, str] = {}
    timeout_ms: int | UnsetType = UNSET
    user: str | UnsetType = UNSET
    working_directory: str | UnsetType = UNSET


class LocalShellCall(ItemBase, frozen=True, kw_only=True, tag="local_shell_call"):
    status: ItemStatus = "completed"
    call_id: str
    action: LocalShellAction


class LocalShellCallOutput(ItemBase, frozen=True, kw_only=True, tag="local_shell_call_output"):
    """Its `id` is the id of the call that it answers; Codex sends `call_id` instead."""

    status: ItemStatus | UnsetType = UNSET
    output: str
    call_id: str | UnsetType = UNSET


class ShellAction(Value, frozen=True, kw_only=True):
    commands: list[str]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class LocalEnvironment(Tagged, frozen=True, kw_only=True, tag="local"):
    skills: list[JsonObject] | UnsetType = UNSET


class ContainerReference(Tagged, frozen=True, kw_only=True, tag="container_reference"):
    container_id: str


class ShellCall(ItemBase, frozen=True, kw_only=True, tag="shell_call"):
    status: ItemStatus = "completed"
    call_id: str
    action: ShellAction
    environment: LocalEnvironment | ContainerReference | None = None
    caller: Caller | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


class ShellTimeout(Tagged, frozen=True, kw_only=True, tag="timeout"):
    pass


class ShellExit(Tagged, frozen=True, kw_only=True, tag="exit"):
    exit_code: int


class ShellOutput(Value, frozen=True, kw_only=True):
    """The output of one command, and how it ended."""

    stdout: str
    stderr: str
    outcome: ShellTimeout | ShellExit
    created_by: str | UnsetType = UNSET


class ShellCallOutput(ItemBase, frozen=True, kw_only=True, tag="shell_call_output"):
    status: ItemStatus = "completed"
    call_id: str
    output: list[ShellOutput]
    max_output_length: int | None = None
    caller: Caller | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


class CreateFile(Tagged, frozen=True, kw_only=True, tag="create_file"):
    path: str
    diff: str


class UpdateFile(Tagged, frozen=True, kw_only=True, tag="update_file"):
    path: str
    diff: str


class DeleteFile(Tagged, frozen=True, kw_only=True, tag="delete_file"):
    path: str


class ApplyPatchCall(ItemBase, frozen=True, kw_only=True, tag="apply_patch_call"):
    status: Literal["in_progress", "completed"] = "completed"
    call_id: str
    operation: CreateFile | UpdateFile | DeleteFile
    caller: Caller | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


class ApplyPatchCallOutput(ItemBase, frozen=True, kw_only=True, tag="apply_patch_call_output"):
    status: Literal["completed", "failed"] = "completed"
    call_id: str
    output: str | None = None
    caller: Caller | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


class ToolSearchCall(ItemBase, frozen=True, kw_only=True, tag="tool_search_call"):
    status: ItemStatus = "completed"
    execution: Literal["server", "client"] = "client"
    call_id: str | None = None
    arguments: Any
    created_by: str | UnsetType = UNSET


class ToolSearchOutput(ItemBase, frozen=True, kw_only=True, tag="tool_search_output"):
    """The tools that a search has found. The model may call them from this item on."""

    status: ItemStatus = "completed"
    execution: Literal["server", "client"] = "client"
    call_id: str | None = None
    tools: list[Tool]
    created_by: str | UnsetType = UNSET


class SafetyCheck(Value, frozen=True, kw_only=True):
    id: str
    code: str | None = None
    message: str | None = None


class ComputerCall(ItemBase, frozen=True, kw_only=True, tag="computer_call"):
    """Passed through; its actions are not examined."""

    status: ItemStatus = "completed"
    call_id: str
    action: JsonObject | UnsetType = UNSET
    actions: list[JsonObject] | UnsetType = UNSET
    pending_safety_checks: list[SafetyCheck] = []


class ComputerCallOutput(ItemBase, frozen=True, kw_only=True, tag="computer_call_output"):
    status: Literal["completed", "incomplete", "failed", "in_progress"] = "completed"
    call_id: str
    output: ComputerScreenshot
    acknowledged_safety_checks: list[SafetyCheck] | UnsetType = UNSET
    created_by: str | UnsetType = UNSET


class ImageGenerationCall(ItemBase, frozen=True, kw_only=True, tag="image_generation_call"):
    """Passed through. `result` is the image as base64."""

    status: Literal["in_progress", "completed", "generating", "failed"] = "completed"
    result: str | None = None
    action: Literal["generate", "edit", "auto"] | UnsetType = UNSET
    background: Literal["transparent", "opaque", "auto"] | UnsetType = UNSET
    error: JsonObject | UnsetType = UNSET
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | UnsetType = UNSET
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | UnsetType = UNSET
    revised_prompt: str | UnsetType = UNSET
    size: str | UnsetType = UNSET
    svg_usage: JsonObject | UnsetType = UNSET


# Items about the conversation itself.


class Compaction(ItemBase, frozen=True, kw_only=True, tag="compaction"):
    """Replaces the items before it."""

    encrypted_content: str
    created_by: str | UnsetType = UNSET


class CompactionTrigger(ItemBase, frozen=True, kw_only=True, tag="compaction_trigger"):
    """Requests a compaction at this point."""


class AdditionalTools(ItemBase, frozen=True, kw_only=True, tag="additional_tools"):
    """Tools that the model may call from this item on."""

    role: Literal[
        "unknown",
        "user",
        "assistant",
        "system",
        "critic",
        "discriminator",
        "developer",
        "tool",
    ] = "developer"
    tools: list[Tool]


class UpdatedReasoning(Value, frozen=True, kw_only=True):
    effort: ReasoningEffort | None = None


class UpdatedText(Value, frozen=True, kw_only=True):
    format: TextFormat


class ConfigurationUpdate(ItemBase, frozen=True, kw_only=True, tag="configuration_update"):
    """Settings that apply from this item on."""

    reasoning: UpdatedReasoning | UnsetType = UNSET
    text: UpdatedText | UnsetType = UNSET


class Program(ItemBase, frozen=True, kw_only=True, tag="program"):
    """A program, written by the model, that calls tools."""

    call_id: str
    code: str
    fingerprint: str


class ProgramOutput(ItemBase, frozen=True, kw_only=True, tag="program_output"):
    status: Literal["completed", "incomplete"] = "completed"
    call_id: str
    result: str


class AgentName(Value, frozen=True, kw_only=True):
    agent_name: str


class AgentMessage(ItemBase, frozen=True, kw_only=True, tag="agent_message"):
    """A message from one agent of the client to another. The model is the recipient, or was the author earlier."""

    author: str
    recipient: str
    content: list[AgentContent]
    agent: AgentName | UnsetType = UNSET


AgentAction: TypeAlias = Literal[
    "spawn_agent", "interrupt_agent", "list_agents", "send_message", "followup_task", "wait_agent"
]


class MultiAgentCall(ItemBase, frozen=True, kw_only=True, tag="multi_agent_call"):
    """A call of an agent that OpenAI hosts. Accepted in histories only."""

    action: AgentAction
    arguments: str
    call_id: str
    agent: AgentName | UnsetType = UNSET


class MultiAgentCallOutput(ItemBase, frozen=True, kw_only=True, tag="multi_agent_call_output"):
    action: AgentAction
    call_id: str
    output: list[OutputText]
    agent: AgentName | UnsetType = UNSET


class ItemReference(Tagged, frozen=True, kw_only=True, tag="item_reference"):
    """Refers to an earlier item of the same history."""

    id: str


Item: TypeAlias = (
    Message
    | Reasoning
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | McpCall
    | McpListTools
    | McpApprovalRequest
    | McpApprovalResponse
    | WebSearchCall
    | FileSearchCall
    | CodeInterpreterCall
    | LocalShellCall
    | LocalShellCallOutput
    | ShellCall
    | ShellCallOutput
    | ApplyPatchCall
    | ApplyPatchCallOutput
    | ToolSearchCall
    | ToolSearchOutput
    | ComputerCall
    | ComputerCallOutput
    | ImageGenerationCall
    | Compaction
    | CompactionTrigger
    | AdditionalTools
    | ConfigurationUpdate
    | Program
    | ProgramOutput
    | AgentMessage
    | MultiAgentCall
    | MultiAgentCallOutput
    | ItemReference
)

ITEMS: dict[str, type[Item]] = members(Item)

ID_PREFIXES: dict[type[Item], str] = {
    Message: "msg_",
    Reasoning: "rs_",
    FunctionCall: "fc_",
    FunctionCallOutput: "fco_",
    CustomToolCall: "ctc_",
    CustomToolCallOutput: "ctco_",
    McpCall: "mcp_",
    McpListTools: "mcpl_",
    McpApprovalRequest: "mcpr_",
    McpApprovalResponse: "mcpa_",
    WebSearchCall: "ws_",
    FileSearchCall: "fs_",
    CodeInterpreterCall: "ci_",
    LocalShellCall: "lsh_",
    LocalShellCallOutput: "lsho_",
    ShellCall: "sh_",
    ShellCallOutput: "sho_",
    ApplyPatchCall: "apc_",
    ApplyPatchCallOutput: "apco_",
    ToolSearchCall: "tsc_",
    ToolSearchOutput: "tso_",
    ComputerCall: "cu_",
    ComputerCallOutput: "cuo_",
    ImageGenerationCall: "ig_",
    Compaction: "cmp_",
    CompactionTrigger: "cmpt_",
    AdditionalTools: "at_",
    ConfigurationUpdate: "cfg_",
    Program: "prg_",
    ProgramOutput: "prgo_",
    AgentMessage: "amsg_",
    MultiAgentCall: "mac_",
    MultiAgentCallOutput: "maco_",
}
"""The id prefix of each item type. A reference has no id of its own."""
