"""Builder of calls of the tools that the API defines and the client runs."""

from __future__ import annotations

import msgspec

from gateway.items.builders.function_call import FunctionCallBuilder
from gateway.items.builders.item import EndStatus, ItemBuilder
from gateway.items.builders.shell_call import append_commands
from gateway.tools.client_run import ClientCall, ClientCallType, client_call
from gateway.wire import items


class ClientCallBuilder(ItemBuilder):
    """Builds a `shell_call`, `local_shell_call`, `apply_patch_call` or `tool_search_call`.

    Its fields are made from the complete arguments. A call with invalid or incomplete arguments becomes a
    `function_call` with the tool's name and the unchanged arguments, so that no client runs a part of a command or
    patch. The events are made when the call is complete.
    """

    def __init__(self, item_id: str, kind: ClientCallType, call_id: str, name: str) -> None:
        self.id = item_id
        self._kind = kind
        self._call_id = call_id
        self._name = name
        self._arguments: list[str] = []

    def write(self, text: str) -> None:
        self._arguments.append(text)

    def close(self, status: EndStatus) -> ClientCall | items.FunctionCall:
        written = "".join(self._arguments)
        if status == "completed":
            item = client_call(self._kind, self.id, self._call_id, written or "{}")
            if item is not None:
                self._append_events(item)
                return item
        call = FunctionCallBuilder(self.id, self._call_id, self._name, None)
        call.events = self.events
        call.begin(self.output_index)
        if written:
            call.write(written)
        return call.close(status)

    def _append_events(self, item: ClientCall) -> None:
        if self.events is None:
            return
        if isinstance(item, items.ShellCall):
            append_commands(item, self.output_index, self.events)
            return
        self.events.added(msgspec.structs.replace(item, status="in_progress"), self.output_index)
        self.events.done(item, self.output_index)
