"""Builder of approval requests."""

from __future__ import annotations

from collections.abc import Callable

from gateway.items.builders.item import EndStatus, ItemBuilder
from gateway.wire import items


class ApprovalRequestBuilder(ItemBuilder):
    """Builds an `mcp_approval_request`. Its events are made when it is complete, because the API has no deltas for
    it."""

    def __init__(
        self,
        item_id: str,
        server_label: str,
        name: str,
        sign: Callable[[str, str, str], str] | None = None,
    ) -> None:
        """`sign` returns the id, in place of `item_id`, once the arguments are known; see `ResponseAssembler`."""
        self.id = item_id
        self._server_label = server_label
        self._name = name
        self._sign = sign
        self._arguments: list[str] = []

    def write(self, text: str) -> None:
        self._arguments.append(text)

    def close(self, status: EndStatus) -> items.McpApprovalRequest:
        """Close the item. If it was cut off, its arguments are incomplete JSON, which no tool accepts."""
        written = "".join(self._arguments)
        arguments = written or ("{}" if status == "completed" else "{")
        if self._sign is not None:
            self.id = self._sign(self._server_label, self._name, arguments)
        item = items.McpApprovalRequest(
            id=self.id,
            server_label=self._server_label,
            name=self._name,
            arguments=arguments,
        )
        if self.events is not None:
            self.events.added(item, self.output_index)
            self.events.done(item, self.output_index)
        return item
