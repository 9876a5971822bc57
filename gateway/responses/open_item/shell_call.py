"""A `shell` call that the gateway runs: two items, the call and its output."""

from __future__ import annotations

import msgspec

from gateway.protocols import ToolResult
from gateway.responses.open_item.client_call import tell_shell_call
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.tools.client_run import client_call
from gateway.wire import events, items
from gateway.wire.common import ItemStatus


class OpenShellCall:
    """A `shell_call`, told of when it is written; from then on its `shell_call_output`, which waits for the result.

    Arguments that are no such call are a call without commands: what is wrong with them is its output.
    """

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        call_id: str,
        name: str,
        container_id: str,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._next = sequence
        self._call_id = call_id
        self._container_id = container_id
        self._arguments: list[str] = []
        self._call: items.ShellCall | None = None

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def open(self, out: Out) -> None:
        """Nothing is told yet."""

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)

    def written(self, out: Out) -> None:
        self._tell_call("completed", out)

    def answered_by(self, item_id: str, output_index: int, out: Out) -> items.ShellCall:
        """From here on this is the output, with that id and place; returns the finished call, which is `written`."""
        assert self._call is not None
        self.id, self.output_index = item_id, output_index
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=output_index,
                item=self._output("in_progress", []),
            )
        )
        return self._call

    def running(self, out: Out) -> None:
        """The API has no event for it."""

    def finish(self, result: ToolResult, out: Out) -> items.ShellCallOutput:
        said = result.details.get("output")
        if said is None:
            said = [
                {"stdout": "", "stderr": result.text, "outcome": {"type": "exit", "exit_code": 1}}
            ]
        outputs = msgspec.convert(said, list[items.ShellOutput])
        for index, each in enumerate(outputs):
            out += (
                events.ShellCallOutputContentDelta(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    command_index=index,
                    delta=events.ShellOutputDelta(stdout=each.stdout, stderr=each.stderr),
                ),
                events.ShellCallOutputContentDone(
                    sequence_number=self._next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    command_index=index,
                    output=[each],
                ),
            )
        return self._end(self._output("completed", outputs), out)

    def close(self, status: EndStatus, out: Out) -> items.Item:
        if self._call is None:
            return self._tell_call("incomplete", out)
        return self._end(self._output("incomplete", []), out)

    def _tell_call(self, status: EndStatus, out: Out) -> items.ShellCall:
        written = client_call("shell_call", self.id, self._call_id, self.arguments or "{}")
        action = written.action if isinstance(written, items.ShellCall) else None
        self._call = items.ShellCall(
            id=self.id,
            status=status,
            call_id=self._call_id,
            action=action or items.ShellAction(commands=[]),
            environment=items.ContainerReference(container_id=self._container_id),
        )
        tell_shell_call(self._call, self.output_index, self._next, out)
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

    def _end(self, item: items.ShellCallOutput, out: Out) -> items.ShellCallOutput:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
