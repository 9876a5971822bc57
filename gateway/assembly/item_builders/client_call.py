"""Builder of calls to the API's own client-run tools."""

from __future__ import annotations

import msgspec

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.function_call import AnnouncedFunctionCall
from gateway.assembly.item_builders.item import EndStatus, ItemBuilder
from gateway.assembly.item_builders.shell_commands import announce_commands
from gateway.tools.client_run import ClientCall, ClientCallType, client_call
from gateway.wire import items


class ClientCallBuilder(ItemBuilder):
    """Builds a `shell_call`, `local_shell_call`, `apply_patch_call` or `tool_search_call`.

    Its fields are made from the whole arguments. Invalid or incomplete arguments are returned unchanged, as a
    `function_call` with the tool's name, so that no client runs part of a command or patch.
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
                return item
        return items.FunctionCall(
            id=self.id,
            status=status,
            call_id=self._call_id,
            name=self._name,
            arguments=written,
        )


class AnnouncedClientCall(Announced, ClientCallBuilder):
    """Announces a call of one of the API's own tools when it is complete."""

    def close(self, status: EndStatus) -> ClientCall | items.FunctionCall:
        item = super().close(status)
        match item:
            case items.FunctionCall():
                self._as_function(item, status)
            case items.ShellCall():
                announce_commands(item, self.output_index, self.events)
            case _:
                self._added(msgspec.structs.replace(item, status="in_progress"))
                self._done(item)
        return item

    def _as_function(self, item: items.FunctionCall, status: EndStatus) -> None:
        call = AnnouncedFunctionCall(self.id, self._call_id, self._name, None)
        call.events = self.events
        call.begin(self.output_index)
        if item.arguments:
            call.write(item.arguments)
        call.close(status)
