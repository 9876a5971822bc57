"""A compaction that is being written."""

from __future__ import annotations

from gateway.responses.open_item.item import NextSequence, Out
from gateway.wire import events, items


class OpenCompaction:
    """A summary of what was before. It is told whole when it is finished: it is sealed."""

    def __init__(self, item_id: str, output_index: int, sequence: NextSequence) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=items.Compaction(id=self.id, encrypted_content=""),
            )
        )

    def compacting(self, out: Out) -> None:
        """The model has begun to write the summary."""
        out.append(
            events.CompactionCompacting(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )

    def finish(self, encrypted_content: str, out: Out) -> items.Compaction:
        """The item has what was sealed; nothing, where its response ends before the summary does: it then stands for nothing."""
        item = items.Compaction(id=self.id, encrypted_content=encrypted_content)
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
