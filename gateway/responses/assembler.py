"""From a parser's deltas to the events and the items of a Response: the one source of truth.

Pure and synchronous: no clock, no id source, no network of its own; they are handed in. The streamed answer, the plain
one, the background run and what is stored are all made of the objects that are built here, once each.

Promises, for every sequence of calls: sequence numbers are dense from 0; `response.created` is first; each
`output_item.added` has one `output_item.done` with the same id and output_index; deltas add up to what `done` says;
there is exactly one terminal event, the last; and its response holds the very items that were in the `done` events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, assert_never

import msgspec
from msgspec import UNSET

from gateway.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    joined,
)
from gateway.loop.logprobs import LogprobAligner
from gateway.protocols import CallRecord, FinishReason, ToolResult
from gateway.responses.included import hidden_parts
from gateway.responses.open_call import OpenCall, open_call
from gateway.responses.open_item import (
    OpenApprovalRequest,
    OpenCitedMessage,
    OpenClientCall,
    OpenCompaction,
    OpenCustomCall,
    OpenFunctionCall,
    OpenMcpCall,
    OpenMessage,
    OpenReasoning,
    OpenServerCall,
    OpenShellCall,
    OpenSummarizedReasoning,
    Out,
)
from gateway.responses.roles import CallRole
from gateway.tools.citations import by_cursor, by_mark
from gateway.tools.sandbox_links import by_path
from gateway.wire import events, items
from gateway.wire.response import IncompleteDetails, Response, ResponseError, Usage, snapshot

Open = OpenMessage | OpenReasoning | OpenCall
CLIENT_CALLS = (
    items.FunctionCall
    | items.CustomToolCall
    | items.McpApprovalRequest
    | items.LocalShellCall
    | items.ShellCall
    | items.ApplyPatchCall
    | items.ToolSearchCall
)
"""What a client runs, or approves."""


class ResponseAssembler:
    """One response while it is made. Not reusable."""

    def __init__(
        self,
        response: Response,
        *,
        roles: Mapping[str, CallRole],
        new_id: Callable[[str], str],
        clock: Callable[[], float],
        aligner: LogprobAligner | None = None,
        seal: Callable[[str], str] | None = None,
        include: Collection[str] | None = None,
        known: Mapping[str, CallRecord] = {},
        summarizes: bool = False,
        quiet: bool = False,
    ) -> None:
        """`new_id(prefix)` gives a fresh id that begins with `prefix`; `clock()` gives Unix time in seconds.

        `aligner` is given where log probabilities were asked for, `seal` where reasoning shall carry its text sealed.
        `include` is the request's; None shows what there is. `known` are earlier calls, whose sources may be cited.
        `summarizes` tells reasoning as a summary too. `quiet`: nobody reads the events on the way, so they may be few.
        """
        self.response = response
        self.results: dict[str, CallRecord] = {}
        """By item id: what the model wrote and read of the calls whose items do not show it."""
        self._roles = roles
        self._new_id = new_id
        self._clock = clock
        self._aligner = aligner
        self._seal = seal
        self._include = include
        self._open_reasoning = OpenSummarizedReasoning if summarizes else OpenReasoning
        self._sources = by_cursor(each for call in known.values() for each in call.sources)
        self._files = by_mark(each for call in known.values() for each in call.files)
        self._container_files = by_path(
            each for call in known.values() for each in call.container_files
        )
        self._next = itertools.count().__next__
        self._quiet = quiet and aligner is None
        self._gathered: list[Delta] = []
        """What is fed and not written yet, where it is quiet."""
        self._open: Open | None = None
        self._slots: list[items.Item | None] = []
        self._calls: list[OpenServerCall] = []
        self._compaction: OpenCompaction | None = None
        self._phase: Literal["commentary", "final_answer"] | None = None
        self._incomplete: Literal["max_output_tokens", "content_filter"] | None = None
        self._ended = False

    # What the response is now.

    @property
    def finished_items(self) -> list[items.Item]:
        """The finished items, in order."""
        return [item for item in self._slots if item is not None]

    @property
    def pending_calls(self) -> Sequence[OpenServerCall]:
        """Server-run calls that are written and not yet answered, in order."""
        return tuple(self._calls)

    @property
    def calls_client(self) -> bool:
        """Whether the output so far has a call that the client runs, or approves."""
        return any(isinstance(i, CLIENT_CALLS) and not _is_hosted(i) for i in self._slots)

    @property
    def cut_off(self) -> bool:
        """Whether a generation of this response was ended by a limit."""
        return self._incomplete is not None

    # The life of the response.

    def start(self, status: Literal["queued", "in_progress"] = "in_progress") -> Out:
        """The response exists: `response.created`, and its first status."""
        self.response.status = status
        first = snapshot(self.response)
        out: Out = [events.ResponseCreated(sequence_number=self._next(), response=first)]
        if status == "queued":
            out.append(events.ResponseQueued(sequence_number=self._next(), response=first))
        else:
            out.append(events.ResponseInProgress(sequence_number=self._next(), response=first))
        return out

    def progress(self) -> Out:
        """A queued response begins to run."""
        self.response.status = "in_progress"
        return [
            events.ResponseInProgress(
                sequence_number=self._next(), response=snapshot(self.response)
            )
        ]

    def feed(self, deltas: Sequence[Delta]) -> Out:
        """Write `deltas` into the response; the events that they make, in order.

        Where it is quiet, they are gathered, and written as one when the generation, or the response, ends: the same items,
        in the fewest events.
        """
        out: Out = []
        if self._quiet:
            self._gathered += deltas
        else:
            self._write_all(deltas, out)
        return out

    def feed_framed(self, deltas: Sequence[Delta]) -> Out | bytes:
        """As `feed`, for server-sent events: nearly always one more piece of the open text, which is given as it is sent."""
        if len(deltas) == 1 and self._aligner is None:
            delta, item = deltas[0], self._open
            if type(delta) is TextDelta and type(item) is OpenMessage:
                return item.frame_text(delta.text) or self.feed(deltas)
            if type(delta) is ReasoningDelta and type(item) is OpenReasoning:
                return item.frame_text(delta.text)
        return self.feed(deltas)

    def _write_all(self, deltas: Sequence[Delta], out: Out) -> None:
        for delta in deltas:
            message = self._open
            # Nearly every delta is more text of the open message, and takes this short way.
            if type(delta) is TextDelta and type(message) is OpenMessage and self._aligner is None:
                message.write_text(delta.text, (), out)
            else:
                self._write(delta, out)

    def _write_gathered(self, out: Out) -> None:
        gathered, self._gathered = self._gathered, []
        self._write_all(joined(gathered), out)

    def _write(self, delta: Delta, out: Out) -> None:
        match delta:
            case TextDelta():
                logprobs = self._aligner.take(delta.start, delta.text) if self._aligner else ()
                self._message(out).write_text(delta.text, logprobs, out)
            case ReasoningDelta():
                self._reasoning(out).write(delta.text, out)
            case CallArgumentsDelta():
                if isinstance(self._open, OpenMessage | OpenReasoning) or self._open is None:
                    raise RuntimeError("a parser wrote arguments outside a call")
                self._open.write(delta.text, out)
            case CallStarted():
                self._close("completed", out)
                self._open = open_call(
                    delta, self._roles, self._reserve(), self._next, self._new_id, self._include
                )
                self._open.open(out)
            case CallEnded():
                self._end_call(out)
            case RefusalDelta():
                self._message(out).write_refusal(delta.text, out)
            case MessageStarted():
                self._close("completed", out)
                self._phase = delta.phase
            case BlockEnded():
                self._close("completed", out)
            case _:
                assert_never(delta)

    def end_generation(self, reason: FinishReason) -> Out:
        """The engine's output has ended; closes what it left open."""
        out: Out = []
        self._write_gathered(out)
        match reason:
            case "length":
                self._incomplete = "max_output_tokens"
            case "content_filter":
                self._incomplete = "content_filter"
            case "stop" | "error" | "abort":
                pass
            case _:
                assert_never(reason)
        is_call = not isinstance(self._open, OpenMessage | OpenReasoning)
        cut = reason != "stop" or (is_call and self._open is not None)
        self._close("incomplete" if cut else "completed", out)
        self._phase = None
        return out

    def call_running(self, call: OpenServerCall) -> Out:
        """The tool of a pending call was started."""
        out: Out = []
        call.running(out)
        return out

    def call_finished(self, call: OpenServerCall, result: ToolResult) -> Out:
        """The tool of a pending call has answered."""
        out: Out = []
        self._calls.remove(call)
        item = call.finish(result, out)
        self._slots[call.output_index] = item
        if not isinstance(item, items.McpCall | items.ShellCallOutput):  # which show it all
            self.results[item.id] = CallRecord(
                name=call.name,
                arguments=call.arguments,
                result=result.text,
                sources=result.sources,
                files=result.files,
                container_files=result.container_files,
                hidden=hidden_parts(item, result),
            )
        self._sources.update(by_cursor(result.sources))
        self._files.update(by_mark(result.files))
        self._container_files.update(by_path(result.container_files))
        return out

    def add_item(self, make: Callable[[str, int], items.Item], prefix: str) -> Out:
        """Add an item that is not written by the model (a tool list, an approval request): added and done at once.

        `make(item_id, output_index)` builds it.
        """
        out: Out = []
        self._close("completed", out)
        index = self._reserve()
        item = make(self._new_id(prefix), index)
        out += (
            events.OutputItemAdded(sequence_number=self._next(), output_index=index, item=item),
            events.OutputItemDone(sequence_number=self._next(), output_index=index, item=item),
        )
        self._slots[index] = item
        return out

    def list_tools(self, listing: items.McpListTools) -> Out:
        """Show the tools of an MCP server, or why they could not be listed. `listing` has no id yet."""
        out: Out = []
        self._close("completed", out)
        index = self._reserve()
        item = msgspec.structs.replace(listing, id=self._new_id("mcpl_"))
        begun = msgspec.structs.replace(item, tools=[], error=UNSET)
        outcome = events.McpListToolsFailed if item.error else events.McpListToolsCompleted
        out += (
            events.OutputItemAdded(sequence_number=self._next(), output_index=index, item=begun),
            events.McpListToolsInProgress(
                sequence_number=self._next(), item_id=item.id, output_index=index
            ),
            outcome(sequence_number=self._next(), item_id=item.id, output_index=index),
            events.OutputItemDone(sequence_number=self._next(), output_index=index, item=item),
        )
        self._slots[index] = item
        return out

    def open_compaction(self) -> Out:
        """What the response goes on from is summarized."""
        out: Out = []
        self._compaction = OpenCompaction(self._new_id("cmp_"), self._reserve(), self._next)
        self._compaction.open(out)
        return out

    def compacting(self) -> Out:
        """The summary is being written."""
        assert self._compaction is not None, "it was opened"
        out: Out = []
        self._compaction.compacting(out)
        return out

    def end_compaction(self, sealed: str) -> Out:
        """The summary is there."""
        out: Out = []
        self._finish_compaction(sealed, out)
        return out

    def _finish_compaction(self, sealed: str, out: Out) -> None:
        if self._compaction is not None:
            compaction, self._compaction = self._compaction, None
            self._slots[compaction.output_index] = compaction.finish(sealed, out)

    def approved_call(self, name: str, arguments: str, approval_request_id: str) -> Out:
        """A call that was approved since the model made it: written, and pending from now on."""
        out: Out = []
        self._close("completed", out)
        role = self._roles[name]
        call = OpenMcpCall(
            self._new_id("mcp_"),
            self._reserve(),
            self._next,
            role.server_label,
            name,
            shown_name=role.shown_name,
            approval_request_id=approval_request_id,
        )
        call.open(out)
        if arguments:
            call.write(arguments, out)
        call.written(out)
        self._calls.append(call)
        return out

    # The end: each of these closes what is open and fixes the status; `terminal` then tells it.

    def finish(self, usage: Usage | None) -> Out:
        """The response is over: completed, or incomplete where a limit ended it. Returns what closes; see `terminal`."""
        out = self._end(usage)
        if self._incomplete is None:
            self.response.status = "completed"
            self.response.completed_at = int(self._clock())
        else:
            self.response.status = "incomplete"
            self.response.incomplete_details = IncompleteDetails(reason=self._incomplete)
        return out

    def fail(self, code: str, message: str, usage: Usage | None) -> Out:
        """The response failed; what was written so far is kept. Returns what closes; see `terminal`."""
        out = self._end(usage)
        self.response.status = "failed"
        self.response.error = ResponseError(code=code, message=message)
        return out

    def cancel(self, usage: Usage | None) -> Out:
        """The response was cancelled; what was written so far is kept. Returns what closes; see `terminal`."""
        out = self._end(usage)
        self.response.status = "cancelled"
        return out

    def spoil(self, code: str, message: str) -> None:
        """What had ended well has failed after all: it could not be kept."""
        self.response.status = "failed"
        self.response.completed_at = None
        self.response.incomplete_details = None
        self.response.error = ResponseError(code=code, message=message)

    def terminal(self) -> events.Event:
        """The one terminal event, made after the response is stored."""
        number = self._next()
        final = snapshot(self.response)
        match self.response.status:
            case "completed":
                return events.ResponseCompleted(sequence_number=number, response=final)
            case "failed":
                return events.ResponseFailed(sequence_number=number, response=final)
            case "incomplete" | "cancelled":
                # The API has no event for a cancelled response: its status says so.
                return events.ResponseIncomplete(sequence_number=number, response=final)
            case status:
                raise RuntimeError(f"a response with status {status} has no terminal event")

    def _end(self, usage: Usage | None) -> Out:
        if self._ended:
            raise RuntimeError("a response ends once")
        self._ended = True
        out: Out = []
        self._write_gathered(out)
        self._close("incomplete", out)
        self._finish_compaction("", out)
        for call in self._calls:
            self._slots[call.output_index] = call.close("incomplete", out)
        self._calls = []
        self.response.output = self.finished_items
        self.response.usage = usage
        return out

    # Items.

    def _reserve(self) -> int:
        self._slots.append(None)
        return len(self._slots) - 1

    def _message(self, out: Out) -> OpenMessage:
        if isinstance(self._open, OpenMessage):
            return self._open
        self._close("completed", out)
        place = self._new_id("msg_"), self._reserve(), self._next, self._phase
        message = (
            OpenCitedMessage(*place, self._sources, self._files, self._container_files)
            if self._sources or self._files or self._container_files
            else OpenMessage(*place)
        )
        self._phase = None
        self._open = message
        message.open(out)
        return message

    def _reasoning(self, out: Out) -> OpenReasoning:
        if isinstance(self._open, OpenReasoning):
            return self._open
        self._close("completed", out)
        make = self._open_reasoning
        reasoning = make(self._new_id("rs_"), self._reserve(), self._next, self._seal)
        self._open = reasoning
        reasoning.open(out)
        return reasoning

    def _end_call(self, out: Out) -> None:
        call = self._open
        if call is None or isinstance(call, OpenMessage | OpenReasoning):
            raise RuntimeError("a parser ended a call that it had not started")
        if isinstance(call, OpenFunctionCall | OpenMcpCall) and not call.arguments:
            call.write("{}", out)
        if isinstance(
            call, OpenFunctionCall | OpenCustomCall | OpenApprovalRequest | OpenClientCall
        ):
            self._close("completed", out)
            return
        call.written(out)
        if isinstance(call, OpenShellCall):
            index, prefix = call.output_index, items.ID_PREFIXES[items.ShellCallOutput]
            self._slots[index] = call.answered_by(self._new_id(prefix), self._reserve(), out)
        self._calls.append(call)
        self._open = None

    def _close(self, status: Literal["completed", "incomplete"], out: Out) -> None:
        """End the open item, if there is one."""
        if self._open is None:
            return
        open_item, self._open = self._open, None
        self._slots[open_item.output_index] = open_item.close(status, out)


def _is_hosted(item: items.Item) -> bool:
    """Whether it is the call of a shell in a container of the gateway's."""
    return isinstance(item, items.ShellCall) and isinstance(
        item.environment, items.ContainerReference
    )
