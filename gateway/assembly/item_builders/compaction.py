"""Announced compaction items. Only Responses has them."""

from __future__ import annotations

from gateway.assembly.item_builders.announced import Announced, EventCollector
from gateway.wire import events, items


class AnnouncedCompaction(Announced):
    """Builds and announces a compaction. Its content is sent only when it is finished, because it is encrypted."""

    def __init__(self, item_id: str, writer: EventCollector) -> None:
        self.id = item_id
        self.events = writer

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(items.Compaction(id=self.id, encrypted_content=""))

    def compacting(self) -> None:
        """Report that the model has begun to write the summary."""
        self._progress(events.CompactionCompacting)

    def finish(self, encrypted_content: str) -> items.Compaction:
        """Close the item with its encrypted content, which is empty if the response ended before the summary did; the item
        then replaces nothing."""
        item = items.Compaction(id=self.id, encrypted_content=encrypted_content)
        self._done(item)
        return item
