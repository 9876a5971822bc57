"""Builders of MCP calls and of the tool lists of MCP servers."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET

from gateway.items.builders.item import EndStatus, ItemBuilder, ServerCallBuilder
from gateway.plugins.protocols import ToolResult
from gateway.wire import events, items


class McpCallBuilder(ServerCallBuilder):
    """Builds an `mcp_call` for a function that the gateway runs. The call is in progress from the start, because the
    API has no event for the beginning of its run."""

    def __init__(
        self,
        item_id: str,
        server_label: str,
        name: str,
        *,
        shown_name: str | None = None,
        approval_request_id: str | None = None,
    ) -> None:
        """`name` is the name that the model sees; `shown_name` is the name in the item, if it differs."""
        super().__init__(item_id, name, approval_request_id=approval_request_id)
        self._shown_name = shown_name or name
        self._server_label = server_label
        self._written = False

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

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(self._item("in_progress"), output_index)
            self._progress(events.McpCallInProgress)

    def write(self, text: str) -> None:
        self._arguments.append(text)
        if (collector := self.events) is not None:
            collector.out.append(
                events.McpCallArgumentsDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    delta=text,
                )
            )

    def written(self) -> None:
        if self._written:
            return
        self._written = True
        if (collector := self.events) is not None:
            collector.out.append(
                events.McpCallArgumentsDone(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    arguments=self.arguments,
                )
            )

    def progressed(self) -> None:
        self._progress(events.McpCallInProgress)

    def finish(self, result: ToolResult) -> items.McpCall:
        if result.failed:
            item = self._item("failed", error=result.text)
        else:
            item = self._item("completed", output=result.text)
        self._progress(events.McpCallFailed if result.failed else events.McpCallCompleted)
        self._done(item)
        return item

    def close(self, status: EndStatus) -> items.McpCall:
        self.written()
        self._progress(events.McpCallFailed)
        item = self._item("incomplete", error="The response ended first.")
        self._done(item)
        return item


class ToolListBuilder(ItemBuilder):
    """Builds the tool list of an MCP server, or the error that prevented listing. It is complete from the start."""

    def __init__(self, item: items.McpListTools) -> None:
        self.id = item.id
        self._item = item

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            empty = msgspec.structs.replace(self._item, tools=[], error=UNSET)
            self.events.added(empty, output_index)
            self._progress(events.McpListToolsInProgress)

    def close(self, status: EndStatus) -> items.McpListTools:
        item = self._item
        self._progress(events.McpListToolsFailed if item.error else events.McpListToolsCompleted)
        self._done(item)
        return item
