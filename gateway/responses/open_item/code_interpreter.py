"""A call that is shown as a `code_interpreter_call`."""

from __future__ import annotations

from typing import Literal

from gateway.protocols import ToolResult
from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.tools.string_field import StringFieldReader
from gateway.wire import events, items


class OpenCodeInterpreterCall:
    """Code that the gateway runs, shown as a `code_interpreter_call`."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        name: str,
        container_id: str,
        *,
        shows_outputs: bool = True,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.name = name
        self._container_id = container_id
        self._shows_outputs = shows_outputs
        self._next = sequence
        self._reader = StringFieldReader("code")
        self._arguments: list[str] = []
        self._code: list[str] = []
        self._written = False

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def _item(
        self,
        status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"],
        result: ToolResult | None = None,
    ) -> items.CodeInterpreterCall:
        details = result.details if result else {}
        return items.code_interpreter_call(
            self.id,
            status,
            "".join(self._code),
            details.get("container_id", self._container_id),
            details.get("outputs") if self._shows_outputs else None,
        )

    def open(self, out: Out) -> None:
        out += (
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("in_progress"),
            ),
            events.CodeInterpreterCallInProgress(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            ),
        )

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)
        self._write(self._reader.feed(text), out)

    def _write(self, code: str, out: Out) -> None:
        if not code:
            return
        self._code.append(code)
        out.append(
            events.CodeInterpreterCallCodeDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=code,
            )
        )

    def written(self, out: Out) -> None:
        self._end_code(out, cut=False)

    def _end_code(self, out: Out, *, cut: bool) -> None:
        if self._written:
            return
        self._written = True
        self._write(self._reader.finish(cut=cut), out)
        out.append(
            events.CodeInterpreterCallCodeDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                code="".join(self._code),
            )
        )

    def running(self, out: Out) -> None:
        out.append(
            events.CodeInterpreterCallInterpreting(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )

    def finish(self, result: ToolResult, out: Out) -> items.CodeInterpreterCall:
        out.append(
            events.CodeInterpreterCallCompleted(
                sequence_number=self._next(), item_id=self.id, output_index=self.output_index
            )
        )
        return self._done(self._item("failed" if result.failed else "completed", result), out)

    def close(self, status: EndStatus, out: Out) -> items.CodeInterpreterCall:
        self._end_code(out, cut=True)
        return self._done(self._item("incomplete"), out)

    def _done(self, item: items.CodeInterpreterCall, out: Out) -> items.CodeInterpreterCall:
        out.append(
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            )
        )
        return item
