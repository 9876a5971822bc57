"""Builders of calls that the client runs: function calls and free-text calls."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from gateway.items.builders.item import EndStatus, ItemBuilder
from gateway.items.string_field import StringFieldReader
from gateway.wire import events, items


class FunctionCallBuilder(ItemBuilder):
    """Builds a `function_call` that the client runs."""

    def __init__(
        self,
        item_id: str,
        call_id: str,
        name: str,
        namespace: str | None,
        *,
        marks_encrypted: bool = False,
    ) -> None:
        """`marks_encrypted`: see `CallRole`."""
        self.id = item_id
        self.call_id = call_id
        self.name = name
        self._namespace = namespace
        self._encrypted: list[str] | UnsetType = [] if marks_encrypted else UNSET
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them: JSON text."""
        return "".join(self._arguments)

    def _item(
        self, arguments: str, status: Literal["in_progress", "completed", "incomplete"]
    ) -> items.FunctionCall:
        return items.FunctionCall(
            id=self.id,
            status=status,
            call_id=self.call_id,
            name=self.name,
            arguments=arguments,
            namespace=self._namespace or UNSET,
            encrypted_function_args=self._encrypted,
        )

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(self._item("", "in_progress"), output_index)

    def write(self, text: str) -> None:
        self._arguments.append(text)
        if (collector := self.events) is not None:
            collector.out.append(
                events.FunctionCallArgumentsDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    delta=text,
                )
            )

    def close(self, status: EndStatus) -> items.FunctionCall:
        item = self._item(self.arguments, status)
        if (collector := self.events) is not None:
            collector.out.append(
                events.FunctionCallArgumentsDone(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    name=self.name,
                    arguments=item.arguments,
                )
            )
            collector.done(item, self.output_index)
        return item


class CustomCallBuilder(ItemBuilder):
    """Builds a call of a free-text tool that the client runs."""

    def __init__(self, item_id: str, call_id: str, name: str, namespace: str | None) -> None:
        self.id = item_id
        self.call_id = call_id
        self.name = name
        self._namespace = namespace
        self._reader = StringFieldReader("input")
        self._input: list[str] = []

    def _item(
        self, text: str, status: Literal["in_progress", "completed", "incomplete"]
    ) -> items.CustomToolCall:
        return items.CustomToolCall(
            id=self.id,
            status=status,
            call_id=self.call_id,
            name=self.name,
            input=text,
            namespace=self._namespace or UNSET,
        )

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(self._item("", "in_progress"), output_index)

    def write(self, text: str) -> None:
        self._write_input(self._reader.feed(text))

    def _write_input(self, text: str) -> None:
        self._input.append(text)
        if text and (collector := self.events) is not None:
            collector.out.append(
                events.CustomToolCallInputDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    delta=text,
                )
            )

    def close(self, status: EndStatus) -> items.CustomToolCall:
        self._write_input(self._reader.finish(cut=status == "incomplete"))
        item = self._item("".join(self._input), status)
        if (collector := self.events) is not None:
            collector.out.append(
                events.CustomToolCallInputDone(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    input=item.input,
                )
            )
            collector.done(item, self.output_index)
        return item
