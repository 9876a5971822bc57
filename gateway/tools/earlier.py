"""The earlier calls of a conversation, for tool sessions that continue the work of these calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.plugins.protocols import CallRecord
from gateway.tools.call_history import CallHistory
from gateway.wire import items
from gateway.wire.content import text_of

_NO_CALLS = items.Message | items.Reasoning | items.McpApprovalRequest | items.McpApprovalResponse


class _Records(CallHistory):
    """Makes a record of each call, by item id."""

    def __init__(self) -> None:
        super().__init__((), {})
        self.records: dict[str, CallRecord] = {}
        self._item_ids: dict[str, str] = {}
        """Maps call ids to item ids."""
        self._item_id = ""

    def read(self, item: items.Item) -> None:
        self._item_id = item.id
        if isinstance(item, items.FunctionCallOutput | items.CustomToolCallOutput):
            self.add_result(item.call_id or "", text_of(item.output), ())
        elif not isinstance(item, _NO_CALLS):
            with suppress(InvalidRequest):  # an item that is no call with a text result
                self.read_call(item, ())

    def add_call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        self._item_ids[call_id] = self._item_id
        self.records[self._item_id] = CallRecord(name=name, arguments=arguments, result="")

    def add_result(self, call_id: str, text: str, param: ParamPath) -> None:
        item_id = self._item_ids.get(call_id)
        if item_id is not None:
            self.records[item_id] = msgspec.structs.replace(self.records[item_id], result=text)


def earlier_calls(
    conversation: Sequence[items.Item], results: Mapping[str, CallRecord]
) -> dict[str, CallRecord]:
    """Records of all calls among the items, by item id, whether the gateway or the client ran them. `results` are the
    known records. The record of any other call contains the text that a model would read."""
    made = _Records()
    for item in conversation:
        made.read(item)
    return {item_id: results.get(item_id, record) for item_id, record in made.records.items()}
