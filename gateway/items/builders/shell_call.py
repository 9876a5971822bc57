"""Builder of `shell` calls that the gateway runs, and the events of a complete shell call."""

from __future__ import annotations

import msgspec

from gateway.items.builders.events import EventCollector
from gateway.items.builders.item import EndStatus, ServerCallBuilder
from gateway.plugins.protocols import ShellDetails, ToolResult
from gateway.tools.client_run import client_call
from gateway.wire import events, items
from gateway.wire.common import ItemStatus


class ShellCallBuilder(ServerCallBuilder):
    """Builds a `shell_call` and then its `shell_call_output`, which waits for the result.

    A call with invalid arguments has no commands, and its output contains the error. The events of the call are made
    when its commands are complete. The API has no event for the beginning of its run.
    """

    def __init__(self, item_id: str, call_id: str, name: str, container_id: str) -> None:
        super().__init__(item_id, name)
        self._call_id = call_id
        self._container_id = container_id
        self._call: items.ShellCall | None = None

    def written(self) -> None:
        self._end_call("completed")

    def answered_by(self, item_id: str, output_index: int) -> items.ShellCall:
        """Switch from the call to its output, which has the given id and index. Returns the finished call. Called after
        `written`."""
        assert self._call is not None
        self.id, self.output_index = item_id, output_index
        if self.events is not None:
            self.events.added(self._output("in_progress", []), output_index)
        return self._call

    def finish(self, result: ToolResult) -> items.ShellCallOutput:
        if isinstance(result.details, ShellDetails):
            outputs = list(result.details.output)
        else:
            failure = items.ShellExit(exit_code=1)
            outputs = [items.ShellOutput(stdout="", stderr=result.text, outcome=failure)]
        item = self._output("completed", outputs)
        if self.events is not None:
            for index, each in enumerate(outputs):
                self._append_output(self.events, index, each)
            self.events.done(item, self.output_index)
        return item

    def close(self, status: EndStatus) -> items.ShellCall | items.ShellCallOutput:
        if self._call is None:
            return self._end_call("incomplete")
        item = self._output("incomplete", [])
        self._done(item)
        return item

    def _end_call(self, status: EndStatus) -> items.ShellCall:
        written = client_call("shell_call", self.id, self._call_id, self.arguments or "{}")
        action = written.action if isinstance(written, items.ShellCall) else None
        self._call = items.ShellCall(
            id=self.id,
            status=status,
            call_id=self._call_id,
            action=action or items.ShellAction(commands=[]),
            environment=items.ContainerReference(container_id=self._container_id),
        )
        if self.events is not None:
            append_commands(self._call, self.output_index, self.events)
        return self._call

    def _output(
        self, status: ItemStatus, outputs: list[items.ShellOutput]
    ) -> items.ShellCallOutput:
        assert self._call is not None
        return items.ShellCallOutput(
            id=self.id,
            status=status,
            call_id=self._call_id,
            output=outputs,
            max_output_length=self._call.action.max_output_length,
        )

    def _append_output(
        self, collector: EventCollector, index: int, output: items.ShellOutput
    ) -> None:
        collector.out += (
            events.ShellCallOutputContentDelta(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                command_index=index,
                delta=events.ShellOutputDelta(stdout=output.stdout, stderr=output.stderr),
            ),
            events.ShellCallOutputContentDone(
                sequence_number=collector.next(),
                item_id=self.id,
                output_index=self.output_index,
                command_index=index,
                output=[output],
            ),
        )


def append_commands(item: items.ShellCall, output_index: int, collector: EventCollector) -> None:
    """Append all events of a complete shell call, ending with its `output_item.done`."""
    empty = msgspec.structs.replace(item.action, commands=[])
    collector.added(msgspec.structs.replace(item, action=empty, status="in_progress"), output_index)
    out, number = collector.out, collector.next
    for index, command in enumerate(item.action.commands):
        out.append(
            events.ShellCallCommandAdded(
                sequence_number=number(),
                output_index=output_index,
                command_index=index,
                command="",
            )
        )
        if command:
            out.append(
                events.ShellCallCommandDelta(
                    sequence_number=number(),
                    output_index=output_index,
                    command_index=index,
                    delta=command,
                )
            )
        out.append(
            events.ShellCallCommandDone(
                sequence_number=number(),
                output_index=output_index,
                command_index=index,
                command=command,
            )
        )
    collector.done(item, output_index)
