"""The item that is being written: what it is called on the wire, and which events tell of it.

One class per item type. Each is opened once, written to, and closed once; the item is built when it closes, and that
object is what the events, the final response and the store hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import UNSET

from gateway.protocols import TokenLogprob, ToolResult
from gateway.string_field import StringFieldReader
from gateway.wire import content, events, items

Out = list[events.Event]
EndStatus = Literal["completed", "incomplete"]
NextSequence = Callable[[], int]


class OpenItem(Protocol):
    """An item of the output that is not finished."""

    id: str
    output_index: int

    def open(self, out: Out) -> None:
        """Append the events that announce the item."""
        ...

    def close(self, status: EndStatus, out: Out) -> items.Item:
        """Append the events that end the item, its `output_item.done` last; return the finished item."""
        ...


class OpenMessage:
    """An assistant message, of one part or several."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        phase: Literal["commentary", "final_answer"] | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence
        self._phase = phase
        self._parts: list[content.OutputText | content.Refusal] = []
        self._kind: Literal["output_text", "refusal"] | None = None
        self._text: list[str] = []
        self._logprobs: list[content.Logprob] = []
        self._annotations: list[content.Annotation] = []

    def _item(self, status: Literal["in_progress", "completed", "incomplete"]) -> items.Message:
        return items.output_message(self.id, status, list(self._parts), self._phase)

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            )
        )

    def write_text(self, text: str, logprobs: Sequence[TokenLogprob], out: Out) -> None:
        if self._kind != "output_text":
            self._open_part("output_text", out)
        self._text.append(text)
        if logprobs:
            self._logprobs += map(content.logprob, logprobs)
        out.append(
            events.OutputTextDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                delta=text,
                logprobs=[content.delta_logprob(token) for token in logprobs] if logprobs else [],
            )
        )

    def write_refusal(self, text: str, out: Out) -> None:
        if self._kind != "refusal":
            self._open_part("refusal", out)
        self._text.append(text)
        out.append(
            events.RefusalDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.Message:
        self._close_part(out)
        item = self._item(status)
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item

    def _open_part(self, kind: Literal["output_text", "refusal"], out: Out) -> None:
        self._close_part(out)
        self._kind = kind
        empty = (
            content.OutputText(text="") if kind == "output_text" else content.Refusal(refusal="")
        )
        out.append(
            events.ContentPartAdded(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=len(self._parts),
                part=empty,
            )
        )

    def _close_part(self, out: Out) -> None:
        if self._kind is None:
            return
        text = "".join(self._text)
        index = len(self._parts)
        part: content.OutputText | content.Refusal
        if self._kind == "output_text":
            part = content.OutputText(
                text=text, annotations=self._annotations, logprobs=self._logprobs
            )
            out.append(
                events.OutputTextDone(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    text=text,
                    logprobs=[content.done_logprob(entry) for entry in self._logprobs],
                )
            )
        else:
            part = content.Refusal(refusal=text)
            out.append(
                events.RefusalDone(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    content_index=index,
                    refusal=text,
                )
            )
        out.append(
            events.ContentPartDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=index,
                part=part,
            )
        )
        self._parts.append(part)
        self._kind, self._text, self._logprobs, self._annotations = None, [], [], []


class OpenReasoning:
    """A stretch of the chain of thought, as one `reasoning_text` part, without a summary."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        seal: Callable[[str], str] | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence
        self._seal = seal
        self._text: list[str] = []

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=items.Reasoning(id=self.id, summary=[], status="in_progress"),
            )
        )
        out.append(
            events.ContentPartAdded(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                part=content.ReasoningText(text=""),
            )
        )

    def write(self, text: str, out: Out) -> None:
        self._text.append(text)
        out.append(
            events.ReasoningTextDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.Reasoning:
        text = "".join(self._text)
        part = content.ReasoningText(text=text)
        out += (
            events.ReasoningTextDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                text=text,
            ),
            events.ContentPartDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                content_index=0,
                part=part,
            ),
        )
        item = items.Reasoning(
            id=self.id,
            summary=self._end_summary(text, status, out),
            content=[part],
            encrypted_content=UNSET if self._seal is None else self._seal(text),
            status=status,
        )
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item

    def _end_summary(self, text: str, status: EndStatus, out: Out) -> list[content.SummaryText]:
        """Append the events that end the summary, if there is one; return its parts."""
        return []


class OpenFunctionCall:
    """A call of a function that the client runs."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        call_id: str,
        name: str,
        namespace: str | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.call_id = call_id
        self.name = name
        self._namespace = namespace
        self._next = sequence
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """What the model wrote: JSON text."""
        return "".join(self._arguments)

    def _item(
        self, arguments: str, status: Literal["in_progress", "completed", "incomplete"]
    ) -> items.FunctionCall:
        return items.function_call(
            self.id, self.call_id, self.name, arguments, status, self._namespace
        )

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("", "in_progress"),
            )
        )

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)
        out.append(
            events.FunctionCallArgumentsDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.FunctionCall:
        arguments = self.arguments
        item = self._item(arguments, status)
        out += (
            events.FunctionCallArgumentsDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                name=self.name,
                arguments=arguments,
            ),
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            ),
        )
        return item


class OpenCustomCall:
    """A call of a free-text tool that the client runs."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        call_id: str,
        name: str,
        namespace: str | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.call_id = call_id
        self.name = name
        self._namespace = namespace
        self._next = sequence
        self._reader = StringFieldReader("input")
        self._input: list[str] = []

    def _item(
        self, text: str, status: Literal["in_progress", "completed", "incomplete"]
    ) -> items.CustomToolCall:
        return items.custom_tool_call(
            self.id, self.call_id, self.name, text, self._namespace, status
        )

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("", "in_progress"),
            )
        )

    def write(self, text: str, out: Out) -> None:
        self._write(self._reader.feed(text), out)

    def _write(self, text: str, out: Out) -> None:
        if not text:
            return
        self._input.append(text)
        out.append(
            events.CustomToolCallInputDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.CustomToolCall:
        self._write(self._reader.finish(), out)
        text = "".join(self._input)
        item = self._item(text, status)
        out += (
            events.CustomToolCallInputDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                input=text,
            ),
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            ),
        )
        return item


class OpenServerCall(Protocol):
    """A call that the gateway runs: written, then run, then finished with its result."""

    id: str
    output_index: int
    name: str

    @property
    def arguments(self) -> str:
        """What the model wrote: JSON text."""
        ...

    def open(self, out: Out) -> None: ...

    def write(self, text: str, out: Out) -> None: ...

    def written(self, out: Out) -> None:
        """The arguments are complete."""
        ...

    def running(self, out: Out) -> None:
        """The tool has been started."""
        ...

    def finish(self, result: ToolResult, out: Out) -> items.Item:
        """The tool has answered; returns the finished item."""
        ...

    def close(self, status: EndStatus, out: Out) -> items.Item:
        """The response ends before the tool has answered."""
        ...


class OpenMcpCall:
    """A server-run function, shown as an `mcp_call`."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        server_label: str,
        name: str,
        *,
        shown_name: str | None = None,
        approval_request_id: str | None = None,
    ) -> None:
        """`name` is what the model was told; `shown_name` what the item says, where that is another."""
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._shown_name = shown_name or name
        self._approval_request_id = approval_request_id
        self._server_label = server_label
        self._next = sequence
        self._arguments: list[str] = []
        self._written = False

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def _item(
        self,
        status: Literal["in_progress", "calling", "completed", "incomplete", "failed"],
        output: str | None = None,
        error: str | None = None,
    ) -> items.McpCall:
        return items.McpCall(
            id=self.id,
            server_label=self._server_label,
            name=self._shown_name,
            arguments=self.arguments,
            output=output,
            error=error,
            status=status,
            approval_request_id=self._approval_request_id,
        )

    def open(self, out: Out) -> None:
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            ),
            events.McpCallInProgress(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            ),
        )

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)
        out.append(
            events.McpCallArgumentsDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def written(self, out: Out) -> None:
        if not self._written:
            self._written = True
            out.append(
                events.McpCallArgumentsDone(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    arguments=self.arguments,
                )
            )

    def running(self, out: Out) -> None:
        """The API has no event for it: a call is in progress from its beginning."""

    def finish(self, result: ToolResult, out: Out) -> items.McpCall:
        if result.failed:
            item = self._item("failed", error=result.text)
        else:
            item = self._item("completed", output=result.text)
        end = events.McpCallFailed if result.failed else events.McpCallCompleted
        out.append(
            end(sequence_number=self._next(), item_id=self.id, output_index=self.output_index)
        )
        return self._done(item, out)

    def close(self, status: EndStatus, out: Out) -> items.McpCall:
        self.written(out)
        out.append(
            events.McpCallFailed(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )
        return self._done(self._item("incomplete", error="The response ended first."), out)

    def _done(self, item: items.McpCall, out: Out) -> items.McpCall:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item


class OpenCodeInterpreterCall:
    """Code that the gateway runs, shown as a `code_interpreter_call`."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        name: str,
        container_id: str,
        *,
        shows_outputs: bool = True,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._container_id = container_id
        self._shows_outputs = shows_outputs
        self._next = sequence
        self._reader = StringFieldReader("code")
        self._arguments: list[str] = []
        self._code: list[str] = []
        self._written = False

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def _item(
        self,
        status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"],
        result: ToolResult | None = None,
    ) -> items.CodeInterpreterCall:
        details = result.details if result else {}
        return items.code_interpreter_call(
            self.id,
            status,
            "".join(self._code),
            details.get("container_id", self._container_id),
            details.get("outputs") if self._shows_outputs else None,
        )

    def open(self, out: Out) -> None:
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            ),
            events.CodeInterpreterCallInProgress(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            ),
        )

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)
        self._write(self._reader.feed(text), out)

    def _write(self, code: str, out: Out) -> None:
        if not code:
            return
        self._code.append(code)
        out.append(
            events.CodeInterpreterCallCodeDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=code,
            )
        )

    def written(self, out: Out) -> None:
        if self._written:
            return
        self._written = True
        self._write(self._reader.finish(), out)
        out.append(
            events.CodeInterpreterCallCodeDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                code="".join(self._code),
            )
        )

    def running(self, out: Out) -> None:
        out.append(
            events.CodeInterpreterCallInterpreting(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )

    def finish(self, result: ToolResult, out: Out) -> items.CodeInterpreterCall:
        out.append(
            events.CodeInterpreterCallCompleted(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )
        return self._done(self._item("failed" if result.failed else "completed", result), out)

    def close(self, status: EndStatus, out: Out) -> items.CodeInterpreterCall:
        self.written(out)
        return self._done(self._item("incomplete"), out)

    def _done(self, item: items.CodeInterpreterCall, out: Out) -> items.CodeInterpreterCall:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item


class OpenWebSearchCall:
    """A search, or a page opened, by the gateway, shown as a `web_search_call`."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        name: str,
        *,
        shows_sources: bool = True,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._shows_sources = shows_sources
        self._next = sequence
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def _item(
        self,
        status: Literal["in_progress", "searching", "completed", "failed"],
        result: ToolResult | None = None,
    ) -> items.WebSearchCall:
        action = (result.details.get("action") if result else None) or {
            "type": "search",
            "query": "",
        }
        if not self._shows_sources:
            action = {key: value for key, value in action.items() if key != "sources"}
        return items.web_search_call(self.id, status, action)

    def open(self, out: Out) -> None:
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            ),
            events.WebSearchCallInProgress(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            ),
        )

    def write(self, text: str, out: Out) -> None:
        """The API shows what was searched in the finished item, not as it is written."""
        self._arguments.append(text)

    def written(self, out: Out) -> None:
        """Nothing to tell: see `write`."""

    def running(self, out: Out) -> None:
        out.append(
            events.WebSearchCallSearching(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )

    def finish(self, result: ToolResult, out: Out) -> items.WebSearchCall:
        out.append(
            events.WebSearchCallCompleted(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )
        return self._done(self._item("failed" if result.failed else "completed", result), out)

    def close(self, status: EndStatus, out: Out) -> items.WebSearchCall:
        return self._done(self._item("failed"), out)

    def _done(self, item: items.WebSearchCall, out: Out) -> items.WebSearchCall:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
