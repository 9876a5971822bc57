"""Builder of `mcp_call` items."""

from __future__ import annotations

from typing import Literal

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.item import EndStatus, ServerCallBuilder
from gateway.protocols import ToolResult
from gateway.wire import events, items


class McpCallBuilder(ServerCallBuilder):
    """Builds an `mcp_call` for a function that the gateway runs."""

    def __init__(
        self,
        item_id: str,
        server_label: str,
        name: str,
        *,
        shown_name: str | None = None,
        approval_request_id: str | None = None,
    ) -> None:
        """`name` is the name that the model sees; `shown_name` is the item's, if it differs."""
        super().__init__(item_id, name, approval_request_id=approval_request_id)
        self._shown_name = shown_name or name
        self._server_label = server_label

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
            approval_request_id=self.approval_request_id,
        )

    def finish(self, result: ToolResult) -> items.McpCall:
        if result.failed:
            return self._item("failed", error=result.text)
        return self._item("completed", output=result.text)

    def close(self, status: EndStatus) -> items.McpCall:
        return self._item("incomplete", error="The response ended first.")


class AnnouncedMcpCall(Announced, McpCallBuilder):
    """Announces an MCP call. It is in progress from its start: the API has no event for running it."""

    _written = False

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(self._item("in_progress"))
        self._progress(events.McpCallInProgress)

    def write(self, text: str) -> None:
        self._arguments.append(text)
        writer = self.events
        writer.out.append(
            events.McpCallArgumentsDelta(
                sequence_number=writer.next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def written(self) -> None:
        if not self._written:
            self._written = True
            self.events.out.append(
                events.McpCallArgumentsDone(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    arguments=self.arguments,
                )
            )

    def progressed(self) -> None:
        self._progress(events.McpCallInProgress)

    def finish(self, result: ToolResult) -> items.McpCall:
        item = super().finish(result)
        self._progress(events.McpCallFailed if result.failed else events.McpCallCompleted)
        self._done(item)
        return item

    def close(self, status: EndStatus) -> items.McpCall:
        self.written()
        self._progress(events.McpCallFailed)
        item = super().close(status)
        self._done(item)
        return item
