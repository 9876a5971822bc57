"""The item assembler: builds the items of an answer from a parser's deltas.

It is pure and synchronous. Chat Completions and plugins' APIs use it alone for gateway-run calls: the client sees no
items, but the next prompt needs them. The response assembler (`gateway.items.assembler`) also collects the events of
its builders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, assert_never

from gateway.access.sealing import SealReasoning
from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    CitationEnded,
    CitationStarted,
    Delta,
    EncryptedReasoning,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.items.builders import (
    ApprovalRequestBuilder,
    CitedMessageBuilder,
    ClientCallBuilder,
    CustomCallBuilder,
    EndStatus,
    EventCollector,
    FunctionCallBuilder,
    ItemBuilder,
    McpCallBuilder,
    MessageBuilder,
    ReasoningBuilder,
    ServerCallBuilder,
    ShellCallBuilder,
    SummarizedReasoningBuilder,
)
from gateway.items.call_builder import OpenCall, open_call
from gateway.items.citations import by_cursor, by_mark
from gateway.items.included import hidden_parts
from gateway.items.logprobs import LogprobAligner
from gateway.items.sandbox_links import by_path
from gateway.plugins.protocols import (
    CallRecord,
    ContainerFileSource,
    FileSource,
    FinishReason,
    Source,
    ToolResult,
)
from gateway.tools.roles import CallRole
from gateway.wire import items

Open = MessageBuilder | ReasoningBuilder | OpenCall
CLIENT_CALLS = (
    items.FunctionCall
    | items.CustomToolCall
    | items.McpApprovalRequest
    | items.LocalShellCall
    | items.ShellCall
    | items.ApplyPatchCall
    | items.ToolSearchCall
)
"""Calls that the client runs or approves."""


class ItemAssembler:
    """Assembles the items of one answer. Not reusable."""

    def __init__(
        self,
        *,
        roles: Mapping[str, CallRole],
        new_id: Callable[[str], str],
        aligner: LogprobAligner | None = None,
        seal: SealReasoning | None = None,
        include: Collection[str] | None = None,
        known: Mapping[str, CallRecord] = {},
        summarizes: bool = False,
        approval_id: Callable[[str, str, str], str] | None = None,
        events: EventCollector | None = None,
    ) -> None:
        """For the arguments see `ResponseAssembler`. `events` collects the items' events, if they are sent."""
        self.results: dict[str, CallRecord] = {}
        """Records by item id: input and result of calls whose items do not show them, and reasoning that the engine
        encrypted."""
        self.open: Open | None = None
        """The builder of the item that is being written, if any."""
        self._roles = roles
        self._new_id = new_id
        self._aligner = aligner
        self._seal = seal
        self._include = include
        self._approval_id = approval_id
        self._events = events
        self._reasoning_kind = SummarizedReasoningBuilder if summarizes else ReasoningBuilder
        self._sources: dict[int, list[Source]] = {}
        self._files: dict[str, FileSource] = {}
        self._container_files: dict[str, ContainerFileSource] = {}
        if known:
            self._sources = by_cursor(each for call in known.values() for each in call.sources)
            self._files = by_mark(each for call in known.values() for each in call.files)
            self._container_files = by_path(
                each for call in known.values() for each in call.container_files
            )
        self._slots: list[items.Item | None] = []
        self._calls: list[ServerCallBuilder] = []
        self._phase: Literal["commentary", "final_answer"] | None = None
        self._limit: Literal["max_output_tokens", "content_filter"] | None = None

    # Current state.

    @property
    def finished_items(self) -> list[items.Item]:
        """The finished items, in order."""
        return [item for item in self._slots if item is not None]

    @property
    def pending_calls(self) -> Sequence[ServerCallBuilder]:
        """Gateway-run calls that are written but have no result yet, in order."""
        return tuple(self._calls)

    @property
    def calls_client(self) -> bool:
        """Whether the output so far contains a call that the client runs or approves."""
        return any(isinstance(i, CLIENT_CALLS) and not _is_hosted(i) for i in self._slots)

    @property
    def limit(self) -> Literal["max_output_tokens", "content_filter"] | None:
        """The limit that ended a generation, if any."""
        return self._limit

    # Output.

    def write(self, deltas: Sequence[Delta]) -> None:
        """Write `deltas` into the items."""
        for delta in deltas:
            message = self.open
            # Fast path: nearly every delta is more text of the open message.
            if (
                type(delta) is TextDelta
                and isinstance(message, MessageBuilder)
                and self._aligner is None
            ):
                message.write_text(delta.text, ())
            else:
                self._write(delta)

    def _write(self, delta: Delta) -> None:
        match delta:
            case TextDelta():
                logprobs = self._aligner.take(delta.start, delta.text) if self._aligner else ()
                self._message().write_text(delta.text, logprobs)
            case ReasoningDelta():
                self._reasoning().write(delta.text)
            case EncryptedReasoning():
                reasoning = self._reasoning()
                reasoning.encrypted = delta.content
                self.results[reasoning.id] = CallRecord.of_reasoning(delta.content)
            case CallArgumentsDelta():
                if isinstance(self.open, MessageBuilder | ReasoningBuilder) or self.open is None:
                    raise RuntimeError("a parser wrote arguments outside a call")
                self.open.write(delta.text)
            case CallStarted():
                self.close_open("completed")
                call = open_call(
                    delta,
                    self._roles,
                    self._new_id,
                    self._include,
                    self._approval_id,
                )
                self.open = call
                self.begin(call)
            case CallEnded():
                self._end_call()
            case CitationStarted():
                # Without an open message, the citation begins at the start of the next one.
                if isinstance(self.open, MessageBuilder):
                    self.open.begin_citation()
            case CitationEnded():
                if isinstance(self.open, MessageBuilder):
                    self.open.end_citation(delta.sources)
            case RefusalDelta():
                self._message().write_refusal(delta.text)
            case MessageStarted():
                self.close_open("completed")
                self._phase = delta.phase
            case BlockEnded():
                self.close_open("completed")
            case _:
                assert_never(delta)

    def end_generation(self, reason: FinishReason) -> None:
        """Handle the end of a generation: close the items that it left open.

        If the model stopped within a gateway-run call, the call is run: its tool reports the broken arguments to the
        model.
        """
        if reason == "stop" and isinstance(self.open, ServerCallBuilder):
            self._end_call()
        match reason:
            case "length":
                self._limit = "max_output_tokens"
            case "content_filter":
                self._limit = "content_filter"
            case "stop" | "error" | "abort":
                pass
            case _:
                assert_never(reason)
        is_call = not isinstance(self.open, MessageBuilder | ReasoningBuilder)
        cut = reason != "stop" or (is_call and self.open is not None)
        self.close_open("incomplete" if cut else "completed")
        self._phase = None

    def end(self) -> None:
        """Close all open items, because the answer ends."""
        self.close_open("incomplete")
        for call in self._calls:
            self._slots[call.output_index] = call.close("incomplete")
        self._calls = []

    # Calls that the gateway runs.

    def call_finished(self, call: ServerCallBuilder, result: ToolResult) -> None:
        """Finish a pending call with its result."""
        self._calls.remove(call)
        item = call.finish(result)
        self._slots[call.output_index] = item
        # These two types show the whole result except images.
        if result.seen or not isinstance(item, items.McpCall | items.ShellCallOutput):
            self.results[item.id] = result.record(
                call.name, call.arguments, hidden_parts(item, result)
            )
        self._sources.update(by_cursor(result.sources))
        self._files.update(by_mark(result.files))
        self._container_files.update(by_path(result.container_files))

    def approved_call(self, name: str, arguments: str, approval_request_id: str) -> None:
        """Add a call that the model wrote in an earlier response and the client then approved. It becomes pending."""
        self.close_open("completed")
        role = self._roles[name]
        call = McpCallBuilder(
            self._new_id("mcp_"),
            role.server_label,
            name,
            shown_name=role.shown_name,
            approval_request_id=approval_request_id,
        )
        self.begin(call)
        if arguments:
            call.write(arguments)
        call.written()
        self._calls.append(call)

    # Items.

    def begin(self, builder: ItemBuilder) -> None:
        """Begin an item at the next index of the output."""
        self._slots.append(None)
        builder.events = self._events
        builder.begin(len(self._slots) - 1)

    def put(self, output_index: int, item: items.Item) -> None:
        """Set the finished item at `output_index`."""
        self._slots[output_index] = item

    def close_open(self, status: EndStatus) -> None:
        """Close the item that is being written, if any."""
        if self.open is None:
            return
        open_item, self.open = self.open, None
        self._slots[open_item.output_index] = open_item.close(status)

    def _message(self) -> MessageBuilder:
        if isinstance(self.open, MessageBuilder):
            return self.open
        self.close_open("completed")
        item_id, phase = self._new_id("msg_"), self._phase
        cites = self._sources or self._files or self._container_files
        message = (
            CitedMessageBuilder(
                item_id,
                phase,
                self._sources,
                self._files,
                self._container_files,
            )
            if cites
            else MessageBuilder(item_id, phase)
        )
        self._phase = None
        self.open = message
        self.begin(message)
        return message

    def _reasoning(self) -> ReasoningBuilder:
        if isinstance(self.open, ReasoningBuilder):
            return self.open
        self.close_open("completed")
        reasoning = self._reasoning_kind(self._new_id("rs_"), self._seal)
        self.open = reasoning
        self.begin(reasoning)
        return reasoning

    def _end_call(self) -> None:
        call = self.open
        if call is None or isinstance(call, MessageBuilder | ReasoningBuilder):
            raise RuntimeError("a parser ended a call that it had not started")
        if isinstance(call, FunctionCallBuilder | McpCallBuilder) and not call.arguments:
            call.write("{}")
        if isinstance(
            call,
            FunctionCallBuilder | CustomCallBuilder | ApprovalRequestBuilder | ClientCallBuilder,
        ):
            self.close_open("completed")
            return
        call.written()
        if isinstance(call, ShellCallBuilder):
            index, prefix = call.output_index, items.ID_PREFIXES[items.ShellCallOutput]
            self._slots.append(None)
            self._slots[index] = call.answered_by(self._new_id(prefix), len(self._slots) - 1)
        self._calls.append(call)
        self.open = None


def _is_hosted(item: items.Item) -> bool:
    """Whether `item` is a shell call that runs in a container of the gateway."""
    return isinstance(item, items.ShellCall) and isinstance(
        item.environment, items.ContainerReference
    )
