"""Builder of compaction items, which only the Responses API has."""

from __future__ import annotations

from gateway.items.builders.item import ItemBuilder
from gateway.wire import events, items


class CompactionBuilder(ItemBuilder):
    """Builds a compaction. Its content is sent only when it is finished, because it is encrypted."""

    def __init__(self, item_id: str) -> None:
        self.id = item_id

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(items.Compaction(id=self.id, encrypted_content=""), output_index)

    def compacting(self) -> None:
        """Report that the model has started to write the summary."""
        self._progress(events.CompactionCompacting)

    def finish(self, encrypted_content: str) -> items.Compaction:
        """Close the item with its encrypted content. The content is empty if the response ended before the summary was
        complete; the item then replaces no other items."""
        item = items.Compaction(id=self.id, encrypted_content=encrypted_content)
        self._done(item)
        return item
