"""Announced tool lists of MCP servers. Only Responses has them."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from gateway.assembly.item_builders.announced import Announced, EventCollector
from gateway.assembly.item_builders.item import EndStatus
from gateway.wire import events, items


class AnnouncedToolList(Announced):
    """Announces the tool list of an MCP server, or the error that prevented listing. It is complete from the start."""

    def __init__(self, item: items.McpListTools, writer: EventCollector) -> None:
        self.id = item.id
        self.events = writer
        self._item = item

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(msgspec.structs.replace(self._item, tools=[], error=UNSET))
        self._progress(events.McpListToolsInProgress)

    def close(self, status: EndStatus) -> items.McpListTools:
        item = self._item
        self._progress(events.McpListToolsFailed if item.error else events.McpListToolsCompleted)
        self._done(item)
        return item
