"""A call that the client runs, while the model writes it: of a function, or with free text."""

from __future__ import annotations

from typing import Literal

from gateway.responses.open_item.item import EndStatus, NextSequence, Out
from gateway.tools.string_field import StringFieldReader
from gateway.wire import events, items


class OpenFunctionCall:
    """A call of a function that the client runs."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        call_id: str,
        name: str,
        namespace: str | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.call_id = call_id
        self.name = name
        self._namespace = namespace
        self._next = sequence
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """What the model wrote: JSON text."""
        return "".join(self._arguments)

    def _item(
        self, arguments: str, status: Literal["in_progress", "completed", "incomplete"]
    ) -> items.FunctionCall:
        return items.function_call(
            self.id, self.call_id, self.name, arguments, status, self._namespace
        )

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("", "in_progress"),
            )
        )

    def write(self, text: str, out: Out) -> None:
        self._arguments.append(text)
        out.append(
            events.FunctionCallArgumentsDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.FunctionCall:
        arguments = self.arguments
        item = self._item(arguments, status)
        out += (
            events.FunctionCallArgumentsDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                name=self.name,
                arguments=arguments,
            ),
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            ),
        )
        return item


class OpenCustomCall:
    """A call of a free-text tool that the client runs."""

    def __init__(
        self,
        item_id: str,
        output_index: int,
        sequence: NextSequence,
        call_id: str,
        name: str,
        namespace: str | None,
    ) -> None:
        self.id = item_id
        self.output_index = output_index
        self.call_id = call_id
        self.name = name
        self._namespace = namespace
        self._next = sequence
        self._reader = StringFieldReader("input")
        self._input: list[str] = []

    def _item(
        self, text: str, status: Literal["in_progress", "completed", "incomplete"]
    ) -> items.CustomToolCall:
        return items.custom_tool_call(
            self.id, self.call_id, self.name, text, self._namespace, status
        )

    def open(self, out: Out) -> None:
        out.append(
            events.OutputItemAdded(
                sequence_number=self._next(),
                output_index=self.output_index,
                item=self._item("", "in_progress"),
            )
        )

    def write(self, text: str, out: Out) -> None:
        self._write(self._reader.feed(text), out)

    def _write(self, text: str, out: Out) -> None:
        if not text:
            return
        self._input.append(text)
        out.append(
            events.CustomToolCallInputDelta(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def close(self, status: EndStatus, out: Out) -> items.CustomToolCall:
        self._write(self._reader.finish(cut=status == "incomplete"), out)
        text = "".join(self._input)
        item = self._item(text, status)
        out += (
            events.CustomToolCallInputDone(
                sequence_number=self._next(),
                item_id=self.id,
                output_index=self.output_index,
                input=text,
            ),
            events.OutputItemDone(
                sequence_number=self._next(), output_index=self.output_index, item=item
            ),
        )
        return item
