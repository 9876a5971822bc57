"""The response assembler: turns a parser's deltas into the events and items of a Response.

It is pure and synchronous: clock and id source are passed in, and it uses no network. Streaming and non-streaming
answers, background responses and stored records all contain the same objects, each built once by its item assembler.

Guarantees for every sequence of calls: sequence numbers are dense from 0; `response.created` is first; each
`output_item.added` has one `output_item.done` with the same id and output_index; deltas add up to the text in `done`;
there is exactly one terminal event, which is last; its response holds the same item objects as the `done` events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import msgspec

from gateway.access.sealing import SealReasoning
from gateway.base.deltas import Delta
from gateway.items.builders import (
    CompactionBuilder,
    EventCollector,
    EventList,
    ServerCallBuilder,
    ToolListBuilder,
)
from gateway.items.items import ItemAssembler
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import CallRecord, FinishReason, ToolResult
from gateway.tools.roles import CallRole
from gateway.wire import events, items
from gateway.wire.response import (
    IncompleteDetails,
    Response,
    ResponseError,
    Usage,
    mark_failed,
    snapshot,
)


class ResponseAssembler:
    """Assembles one response. Not reusable."""

    def __init__(
        self,
        response: Response,
        *,
        roles: Mapping[str, CallRole],
        new_id: Callable[[str], str],
        clock: Callable[[], float],
        aligner: LogprobAligner | None = None,
        seal: SealReasoning | None = None,
        include: Collection[str] | None = None,
        known: Mapping[str, CallRecord] = {},
        summarizes: bool = False,
        quiet: bool = False,
        approval_id: Callable[[str, str, str], str] | None = None,
    ) -> None:
        """`new_id(prefix)` returns a fresh id with that prefix; `clock()` returns Unix time in seconds.

        `aligner` is given if log probabilities were requested, `seal` if reasoning items contain `encrypted_content`.
        `include` are the values of the request's `include`; None includes everything. `known` are earlier calls, whose
        sources may be cited. `summarizes`: whether reasoning items also contain their text as a summary. `quiet`:
        whether the response is built without events. `approval_id` returns the id of an approval request for a server
        label, tool name and arguments.
        """
        self.response = response
        self.events = EventCollector()
        """Numbers and collects the events."""
        self._next = self.events.next
        self.items = ItemAssembler(
            roles=roles,
            new_id=new_id,
            aligner=aligner,
            seal=seal,
            include=include,
            known=known,
            summarizes=summarizes,
            approval_id=approval_id,
            events=None if quiet else self.events,
        )
        """Builds the items."""
        self._new_id = new_id
        self._clock = clock
        self._quiet = quiet
        self._compaction: CompactionBuilder | None = None
        self._ended = False
        self.started = False
        """Whether `start` or `resume` was called."""

    # Life cycle of the response.

    def start(self, status: Literal["queued", "in_progress"] = "in_progress") -> EventList:
        """Start the response: `response.created` and its first status event. No events in quiet mode."""
        self.started = True
        self.response.status = status
        if self._quiet:
            return []
        first = snapshot(self.response)
        out: EventList = [events.ResponseCreated(sequence_number=self._next(), response=first)]
        if status == "queued":
            out.append(events.ResponseQueued(sequence_number=self._next(), response=first))
        else:
            out.append(events.ResponseInProgress(sequence_number=self._next(), response=first))
        return out

    def progress(self) -> EventList:
        """Move a queued response to `in_progress`."""
        self.response.status = "in_progress"
        return [
            events.ResponseInProgress(
                sequence_number=self._next(), response=snapshot(self.response)
            )
        ]

    def resume(self, number: int) -> None:
        """Continue a response in progress whose opening events were sent already. The next event has the sequence
        number `number`."""
        self.started = True
        self.response.status = "in_progress"
        self.events.continue_from(number)
        self._next = self.events.next

    def feed(self, deltas: Sequence[Delta]) -> EventList:
        """Write `deltas` into the response. Returns the resulting events, in order. Called for every token."""
        out = self.events.begin_step()
        self.items.write(deltas)
        return out

    def end(self, held: Sequence[Delta], reason: FinishReason) -> EventList:
        """Write the last deltas of a generation, and close the items that it left open."""
        out = self.events.begin_step()
        if held:
            self.items.write(held)
        self.items.end_generation(reason)
        return out

    def running(self, calls: Sequence[ServerCallBuilder]) -> EventList:
        """Mark pending calls as running."""
        out = self.events.begin_step()
        for call in calls:
            call.running()
        return out

    def progressed(self, call: ServerCallBuilder) -> EventList:
        """Report progress of a running call."""
        out = self.events.begin_step()
        call.progressed()
        return out

    def called(self, call: ServerCallBuilder, result: ToolResult) -> EventList:
        """Finish a pending call with its result."""
        out = self.events.begin_step()
        self.items.call_finished(call, result)
        return out

    def approved_call(self, name: str, arguments: str, approval_request_id: str) -> EventList:
        """Add a call that the model wrote in an earlier response and the client then approved. It becomes pending."""
        out = self.events.begin_step()
        self.items.approved_call(name, arguments, approval_request_id)
        return out

    def list_tools(self, listing: items.McpListTools) -> EventList:
        """Add the tool list of an MCP server, or the error that prevented listing. `listing` has no id yet."""
        out = self.events.begin_step()
        self.items.close_open("completed")
        item = msgspec.structs.replace(listing, id=self._new_id("mcpl_"))
        tools = ToolListBuilder(item)
        self.items.begin(tools)
        self.items.put(tools.output_index, tools.close("completed"))
        return out

    def open_compaction(self) -> EventList:
        """Start a compaction item, which reports that the preceding conversation is being summarized."""
        out = self.events.begin_step()
        self._compaction = CompactionBuilder(self._new_id("cmp_"))
        self.items.begin(self._compaction)
        return out

    def compacting(self) -> EventList:
        """Report that the summary is being written."""
        assert self._compaction is not None, "it was opened"
        out = self.events.begin_step()
        self._compaction.compacting()
        return out

    def end_compaction(self, sealed: str) -> EventList:
        """Finish the compaction item."""
        out = self.events.begin_step()
        self._finish_compaction(sealed)
        return out

    def _finish_compaction(self, sealed: str) -> None:
        if self._compaction is not None:
            compaction, self._compaction = self._compaction, None
            self.items.put(compaction.output_index, compaction.finish(sealed))

    # Ending. Each method closes what is open and sets the status, which `terminal` then reports.

    def finish(self, usage: Usage | None) -> EventList:
        """End the response as completed, or as incomplete if a limit ended it. Returns the closing events; see
        `terminal`."""
        out = self._end(usage)
        limit = self.items.limit
        if limit is None:
            self.response.status = "completed"
            self.response.completed_at = int(self._clock())
        else:
            self.response.status = "incomplete"
            self.response.incomplete_details = IncompleteDetails(reason=limit)
        return out

    def fail(self, code: str, message: str, usage: Usage | None) -> EventList:
        """End the response as failed, keeping its output so far. Returns the closing events; see `terminal`."""
        out = self._end(usage)
        self.response.status = "failed"
        self.response.error = ResponseError(code=code, message=message)
        return out

    def cancel(self, usage: Usage | None) -> EventList:
        """End the response as cancelled, keeping its output so far. Returns the closing events; see `terminal`."""
        out = self._end(usage)
        self.response.status = "cancelled"
        return out

    def mark_failed(self, code: str, message: str) -> None:
        """Change an ended response to failed, because it could not be stored."""
        mark_failed(self.response, code, message)

    def terminal(self) -> events.Event:
        """Return the terminal event. Called once, after the response is stored."""
        number = self._next()
        final = snapshot(self.response)
        match self.response.status:
            case "completed":
                return events.ResponseCompleted(sequence_number=number, response=final)
            case "failed":
                return events.ResponseFailed(sequence_number=number, response=final)
            case "incomplete" | "cancelled":
                # The API has no event for a cancelled response; the status shows it.
                return events.ResponseIncomplete(sequence_number=number, response=final)
            case status:
                raise RuntimeError(f"a response with status {status} has no terminal event")

    def _end(self, usage: Usage | None) -> EventList:
        if self._ended:
            raise RuntimeError("a response ends once")
        self._ended = True
        out = self.events.begin_step()
        self.items.end()
        if self._compaction is not None:
            self._finish_compaction("")
        self.response.output = self.items.finished_items
        self.response.usage = usage
        return out
