"""A call of one of the API's own tools that the client runs, while the model writes it."""

from __future__ import annotations

import msgspec

from gateway.responses.open_item.function_call import OpenFunctionCall
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.tools.client_run import ClientCall, ClientCallType, client_call
from gateway.wire import events, items


class OpenClientCall:
    """A `shell_call`, `local_shell_call`, `apply_patch_call` or `tool_search_call`: told of when it is written.

    Its fields are made of the whole arguments. Those that are no such call, or that were cut off, are shown as they are, as a
    `function_call` of the tool's name: half a command or half a patch is nothing that a client should run.
    """

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        kind: ClientCallType,
        call_id: str,
        name: str,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self._next = sequence
        self._kind = kind
        self._call_id = call_id
        self._name = name
        self._arguments: list[str] = []

    def open(self, out: Out) -> None:
        """Nothing is told yet."""

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)

    def close(self, status: EndStatus, out: Out) -> ClientCall | items.FunctionCall:
        written = "".join(self._arguments)
        item = None
        if status == "completed":
            item = client_call(self._kind, self.id, self._call_id, written or "{}")
        if item is None:
            return self._as_function(written, status, out)
        if isinstance(item, items.ShellCall):
            tell_shell_call(item, self.output_index, self._next, out)
        else:
            begun = msgspec.structs.replace(item, status="in_progress")
            _tell(begun, item, self.output_index, self._next, out)
        return item

    def _as_function(self, written: str, status: EndStatus, out: Out) -> items.FunctionCall:
        call = OpenFunctionCall(
            self.id, self.output_index, self._next, self._call_id, self._name, None
        )
        call.open(out)
        if written:
            call.write(written, out)
        return call.close(status, out)


def tell_shell_call(
    item: items.ShellCall, output_index: int, sequence: NextSequence, out: Out
) -> None:
    """Append all the events of a shell call, its `output_item.done` last."""
    empty = msgspec.structs.replace(item.action, commands=[])
    begun = msgspec.structs.replace(item, action=empty, status="in_progress")
    out.append(_added(begun, output_index, sequence))
    for index, command in enumerate(item.action.commands):
        out.append(
            events.ShellCallCommandAdded(
                sequence_number=sequence(),
                output_index=output_index,
                command_index=index,
                command="",
            )
        )
        if command:
            out.append(
                events.ShellCallCommandDelta(
                    sequence_number=sequence(),
                    output_index=output_index,
                    command_index=index,
                    delta=command,
                )
            )
        out.append(
            events.ShellCallCommandDone(
                sequence_number=sequence(),
                output_index=output_index,
                command_index=index,
                command=command,
            )
        )
    out.append(_done(item, output_index, sequence))


def _tell(
    begun: items.Item, item: items.Item, output_index: int, sequence: NextSequence, out: Out
) -> None:
    out.append(_added(begun, output_index, sequence))
    out.append(_done(item, output_index, sequence))


def _added(item: items.Item, output_index: int, sequence: NextSequence) -> events.Event:
    return events.OutputItemAdded(sequence_number=sequence(), output_index=output_index, item=item)


def _done(item: items.Item, output_index: int, sequence: NextSequence) -> events.Event:
    return events.OutputItemDone(sequence_number=sequence(), output_index=output_index, item=item)
