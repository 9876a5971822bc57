"""A call that is shown as an `mcp_call`."""

from __future__ import annotations

from typing import Literal

from gateway.protocols import ToolResult
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.wire import events, items


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
