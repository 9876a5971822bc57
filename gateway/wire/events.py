"""The events of a stream; one Struct per event type.

Fields are in the order in which OpenAI sends them. `obfuscation` is padding against traffic analysis, which the gateway
does not send: `include_obfuscation` has no effect.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import UNSET, UnsetType

from gateway.wire.common import Tagged, Value, type_of
from gateway.wire.content import Annotation, Logprob, OutputPart, SummaryText
from gateway.wire.items import Item, ShellOutput
from gateway.wire.response import Response


class Event(Tagged, frozen=True, kw_only=True, gc=False):
    """Base of all events. Sequence numbers are dense from 0 within a response."""

    sequence_number: int


class ResponseEvent(Event, frozen=True, kw_only=True, gc=False):
    """Base of the events that carry the whole response."""

    response: Response


class ItemEvent(Event, frozen=True, kw_only=True, gc=False):
    """Base of the events about one item."""

    item_id: str
    output_index: int


class PartEvent(ItemEvent, frozen=True, kw_only=True, gc=False):
    """Base of the events about one content part of an item."""

    content_index: int


class SummaryEvent(ItemEvent, frozen=True, kw_only=True, gc=False):
    """Base of the events about one summary part of a reasoning item."""

    summary_index: int


class CommandEvent(Event, frozen=True, kw_only=True, gc=False):
    """Base of the events about one command of a shell call. Unlike the other item events, these have no `item_id`."""

    output_index: int
    command_index: int


class ShellOutputDelta(Value, frozen=True, kw_only=True):
    stdout: str | UnsetType = UNSET
    stderr: str | UnsetType = UNSET


# The response.


class ResponseCreated(ResponseEvent, frozen=True, kw_only=True, gc=False, tag="response.created"):
    pass


class ResponseQueued(ResponseEvent, frozen=True, kw_only=True, gc=False, tag="response.queued"):
    pass


class ResponseInProgress(
    ResponseEvent, frozen=True, kw_only=True, gc=False, tag="response.in_progress"
):
    pass


class ResponseCompleted(
    ResponseEvent, frozen=True, kw_only=True, gc=False, tag="response.completed"
):
    pass


class ResponseIncomplete(
    ResponseEvent, frozen=True, kw_only=True, gc=False, tag="response.incomplete"
):
    pass


class ResponseFailed(ResponseEvent, frozen=True, kw_only=True, gc=False, tag="response.failed"):
    pass


class ErrorEvent(Event, frozen=True, kw_only=True, gc=False, tag="error"):
    """A failure outside a response. Flat, because the SDK raises on any SSE object with a truthy top-level `error`."""

    code: str | None = None
    message: str
    param: str | None = None


# Items and parts.


class OutputItemAdded(Event, frozen=True, kw_only=True, gc=False, tag="response.output_item.added"):
    output_index: int
    item: Item


class OutputItemDone(Event, frozen=True, kw_only=True, gc=False, tag="response.output_item.done"):
    output_index: int
    item: Item


class ContentPartAdded(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.content_part.added"
):
    part: OutputPart


class ContentPartDone(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.content_part.done"
):
    part: OutputPart


# Text.


class OutputTextDelta(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.output_text.delta"
):
    """`logprobs` is always present; `[]` if none were requested."""

    delta: str
    logprobs: list[Logprob] = []
    obfuscation: str | UnsetType = UNSET


class OutputTextDone(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.output_text.done"
):
    text: str
    logprobs: list[Logprob] = []


class OutputTextAnnotationAdded(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.output_text.annotation.added"
):
    annotation_index: int
    annotation: Annotation


class RefusalDelta(PartEvent, frozen=True, kw_only=True, gc=False, tag="response.refusal.delta"):
    delta: str
    obfuscation: str | UnsetType = UNSET


class RefusalDone(PartEvent, frozen=True, kw_only=True, gc=False, tag="response.refusal.done"):
    refusal: str


# Reasoning.


class ReasoningTextDelta(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.reasoning_text.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningTextDone(
    PartEvent, frozen=True, kw_only=True, gc=False, tag="response.reasoning_text.done"
):
    text: str


class ReasoningSummaryPartAdded(
    SummaryEvent, frozen=True, kw_only=True, gc=False, tag="response.reasoning_summary_part.added"
):
    part: SummaryText


class ReasoningSummaryPartDone(
    SummaryEvent, frozen=True, kw_only=True, gc=False, tag="response.reasoning_summary_part.done"
):
    part: SummaryText
    status: Literal["incomplete"] | UnsetType = UNSET


class ReasoningSummaryTextDelta(
    SummaryEvent, frozen=True, kw_only=True, gc=False, tag="response.reasoning_summary_text.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class ReasoningSummaryTextDone(
    SummaryEvent, frozen=True, kw_only=True, gc=False, tag="response.reasoning_summary_text.done"
):
    text: str


# Calls that the client runs.


class FunctionCallArgumentsDelta(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.function_call_arguments.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class FunctionCallArgumentsDone(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.function_call_arguments.done"
):
    """`name` is not a field of SDK 3.52, which ignores it; earlier SDKs had it."""

    name: str | UnsetType = UNSET
    arguments: str


class CustomToolCallInputDelta(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.custom_tool_call_input.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class CustomToolCallInputDone(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.custom_tool_call_input.done"
):
    input: str


class ShellCallCommandAdded(
    CommandEvent, frozen=True, kw_only=True, gc=False, tag="response.shell_call_command.added"
):
    command: str


class ShellCallCommandDelta(
    CommandEvent, frozen=True, kw_only=True, gc=False, tag="response.shell_call_command.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class ShellCallCommandDone(
    CommandEvent, frozen=True, kw_only=True, gc=False, tag="response.shell_call_command.done"
):
    command: str


class ShellCallOutputContentDelta(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.shell_call_output_content.delta"
):
    command_index: int
    delta: ShellOutputDelta


class ShellCallOutputContentDone(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.shell_call_output_content.done"
):
    command_index: int
    output: list[ShellOutput]


# Calls that the gateway runs.


class McpCallArgumentsDelta(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_call_arguments.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class McpCallArgumentsDone(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_call_arguments.done"
):
    arguments: str


class McpCallInProgress(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_call.in_progress"
):
    pass


class McpCallCompleted(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_call.completed"
):
    pass


class McpCallFailed(ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_call.failed"):
    pass


class McpListToolsInProgress(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_list_tools.in_progress"
):
    pass


class McpListToolsCompleted(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_list_tools.completed"
):
    pass


class McpListToolsFailed(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.mcp_list_tools.failed"
):
    pass


class WebSearchCallInProgress(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.web_search_call.in_progress"
):
    pass


class WebSearchCallSearching(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.web_search_call.searching"
):
    pass


class WebSearchCallCompleted(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.web_search_call.completed"
):
    pass


class FileSearchCallInProgress(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.file_search_call.in_progress"
):
    pass


class FileSearchCallSearching(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.file_search_call.searching"
):
    pass


class FileSearchCallCompleted(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.file_search_call.completed"
):
    pass


class CodeInterpreterCallInProgress(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.code_interpreter_call.in_progress"
):
    pass


class CodeInterpreterCallInterpreting(
    ItemEvent,
    frozen=True,
    kw_only=True,
    gc=False,
    tag="response.code_interpreter_call.interpreting",
):
    pass


class CodeInterpreterCallCompleted(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.code_interpreter_call.completed"
):
    pass


class CodeInterpreterCallCodeDelta(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.code_interpreter_call_code.delta"
):
    delta: str
    obfuscation: str | UnsetType = UNSET


class CodeInterpreterCallCodeDone(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.code_interpreter_call_code.done"
):
    code: str


class ImageGenerationCallInProgress(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.image_generation_call.in_progress"
):
    pass


class ImageGenerationCallGenerating(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.image_generation_call.generating"
):
    pass


class ImageGenerationCallCompleted(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.image_generation_call.completed"
):
    pass


class ImageGenerationCallPartialImage(
    ItemEvent,
    frozen=True,
    kw_only=True,
    gc=False,
    tag="response.image_generation_call.partial_image",
):
    partial_image_index: int
    partial_image_b64: str
    background: str | UnsetType = UNSET
    output_format: str | UnsetType = UNSET
    quality: str | UnsetType = UNSET
    size: str | UnsetType = UNSET


class CompactionCompacting(
    ItemEvent, frozen=True, kw_only=True, gc=False, tag="response.compaction.compacting"
):
    pass


# Audio: defined for completeness; the gateway does not produce these.


class AudioDelta(Event, frozen=True, kw_only=True, gc=False, tag="response.audio.delta"):
    delta: str


class AudioDone(Event, frozen=True, kw_only=True, gc=False, tag="response.audio.done"):
    pass


class AudioTranscriptDelta(
    Event, frozen=True, kw_only=True, gc=False, tag="response.audio.transcript.delta"
):
    delta: str


class AudioTranscriptDone(
    Event, frozen=True, kw_only=True, gc=False, tag="response.audio.transcript.done"
):
    pass


AnyEvent: TypeAlias = (
    ResponseCreated
    | ResponseQueued
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | ErrorEvent
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | OutputTextAnnotationAdded
    | RefusalDelta
    | RefusalDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDelta
    | ReasoningSummaryTextDone
    | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone
    | CustomToolCallInputDelta
    | CustomToolCallInputDone
    | ShellCallCommandAdded
    | ShellCallCommandDelta
    | ShellCallCommandDone
    | ShellCallOutputContentDelta
    | ShellCallOutputContentDone
    | McpCallArgumentsDelta
    | McpCallArgumentsDone
    | McpCallInProgress
    | McpCallCompleted
    | McpCallFailed
    | McpListToolsInProgress
    | McpListToolsCompleted
    | McpListToolsFailed
    | WebSearchCallInProgress
    | WebSearchCallSearching
    | WebSearchCallCompleted
    | FileSearchCallInProgress
    | FileSearchCallSearching
    | FileSearchCallCompleted
    | CodeInterpreterCallInProgress
    | CodeInterpreterCallInterpreting
    | CodeInterpreterCallCompleted
    | CodeInterpreterCallCodeDelta
    | CodeInterpreterCallCodeDone
    | ImageGenerationCallInProgress
    | ImageGenerationCallGenerating
    | ImageGenerationCallCompleted
    | ImageGenerationCallPartialImage
    | CompactionCompacting
    | AudioDelta
    | AudioDone
    | AudioTranscriptDelta
    | AudioTranscriptDone
)

EVENTS: dict[str, type[Event]] = {type_of(cls): cls for cls in get_args(AnyEvent)}
TERMINAL = (ResponseCompleted, ResponseIncomplete, ResponseFailed, ErrorEvent)
"""The events that end a stream."""
ENDS: frozenset[type[Event]] = frozenset(TERMINAL)
"""The same as a set, for lookups by `type(event)`: `isinstance` is slow with the Structs' metaclass."""
