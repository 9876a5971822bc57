"""Builder of `shell` calls that the gateway runs: the call and its output."""

from __future__ import annotations

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.item import EndStatus, ServerCallBuilder
from gateway.assembly.item_builders.shell_commands import announce_commands
from gateway.protocols import ShellDetails, ToolResult
from gateway.tools.client_run import client_call
from gateway.wire import events, items
from gateway.wire.common import ItemStatus


class ShellCallBuilder(ServerCallBuilder):
    """Builds a `shell_call` and then its `shell_call_output`, which waits for the result.

    Invalid arguments give a call without commands, whose output contains the error.
    """

    def __init__(self, item_id: str, call_id: str, name: str, container_id: str) -> None:
        super().__init__(item_id, name)
        self._call_id = call_id
        self._container_id = container_id
        self._call: items.ShellCall | None = None

    def written(self) -> None:
        self._end_call("completed")

    def answered_by(self, item_id: str, output_index: int) -> items.ShellCall:
        """Switch from the call to its output, with the given id and index. Returns the finished call; `written` was
        called."""
        assert self._call is not None
        self.id, self.output_index = item_id, output_index
        return self._call

    def finish(self, result: ToolResult) -> items.ShellCallOutput:
        if isinstance(result.details, ShellDetails):
            outputs = list(result.details.output)
        else:
            failure = items.ShellExit(exit_code=1)
            outputs = [items.ShellOutput(stdout="", stderr=result.text, outcome=failure)]
        return self._output("completed", outputs)

    def close(self, status: EndStatus) -> items.ShellCall | items.ShellCallOutput:
        if self._call is None:
            return self._end_call("incomplete")
        return self._output("incomplete", [])

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


class AnnouncedShellCall(Announced, ShellCallBuilder):
    """Announces a call when its commands are complete, and then its output. The API has no event for running it."""

    def _end_call(self, status: EndStatus) -> items.ShellCall:
        item = super()._end_call(status)
        announce_commands(item, self.output_index, self.events)
        return item

    def answered_by(self, item_id: str, output_index: int) -> items.ShellCall:
        call = super().answered_by(item_id, output_index)
        self._added(self._output("in_progress", []))
        return call

    def finish(self, result: ToolResult) -> items.ShellCallOutput:
        item = super().finish(result)
        for index, each in enumerate(item.output):
            self.events.out += (
                events.ShellCallOutputContentDelta(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    command_index=index,
                    delta=events.ShellOutputDelta(stdout=each.stdout, stderr=each.stderr),
                ),
                events.ShellCallOutputContentDone(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    command_index=index,
                    output=[each],
                ),
            )
        self._done(item)
        return item

    def close(self, status: EndStatus) -> items.ShellCall | items.ShellCallOutput:
        item = super().close(status)
        if isinstance(item, items.ShellCallOutput):  # a call is announced where it ends
            self._done(item)
        return item
