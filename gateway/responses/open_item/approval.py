"""A call that the client approves before it is run, while the model writes it."""

from __future__ import annotations

from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.wire import events, items


class OpenApprovalRequest:
    """An `mcp_approval_request`. The API has no deltas for it: it is told of when it is written."""

    def __init__(
        self, item_id: str, output_index: int, sequence: NextSequence, server_label: str, name: str
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence
        self._server_label = server_label
        self._name = name
        self._arguments: list[str] = []

    def open(self, out: Out) -> None:
        """Nothing is told yet."""

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)

    def close(self, status: EndStatus, out: Out) -> items.McpApprovalRequest:
        """A request that was cut off has the beginning of its arguments, which no tool takes: they are no JSON."""
        written = "".join(self._arguments)
        item = items.McpApprovalRequest(
            id=self.id,
            server_label=self._server_label,
            name=self._name,
            arguments=written or ("{}" if status == "completed" else "{"),
        )
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(), output_index=self.output_index, item=item
            ),
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            ),
        )
        return item
