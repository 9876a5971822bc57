"""Builders of calls that the client runs: function calls and free-text calls."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.item import EndStatus, ItemBuilder
from gateway.assembly.string_field import StringFieldReader
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

    def write(self, text: str) -> None:
        self._arguments.append(text)

    def close(self, status: EndStatus) -> items.FunctionCall:
        return self._item(self.arguments, status)


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

    def write(self, text: str) -> None:
        self._write_input(self._reader.feed(text))

    def _write_input(self, text: str) -> None:
        self._input.append(text)

    def close(self, status: EndStatus) -> items.CustomToolCall:
        self._write_input(self._reader.finish(cut=status == "incomplete"))
        return self._item("".join(self._input), status)


class AnnouncedFunctionCall(Announced, FunctionCallBuilder):
    """Announces a function call and its arguments."""

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(self._item("", "in_progress"))

    def write(self, text: str) -> None:
        self._arguments.append(text)
        writer = self.events
        writer.out.append(
            events.FunctionCallArgumentsDelta(
                sequence_number=writer.next(),
                item_id=self.id,
                output_index=self.output_index,
                delta=text,
            )
        )

    def close(self, status: EndStatus) -> items.FunctionCall:
        item = super().close(status)
        self.events.out.append(
            events.FunctionCallArgumentsDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                name=self.name,
                arguments=item.arguments,
            )
        )
        self._done(item)
        return item


class AnnouncedCustomCall(Announced, CustomCallBuilder):
    """Announces a call with free text and its input."""

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(self._item("", "in_progress"))

    def _write_input(self, text: str) -> None:
        super()._write_input(text)
        if text:
            self.events.out.append(
                events.CustomToolCallInputDelta(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    delta=text,
                )
            )

    def close(self, status: EndStatus) -> items.CustomToolCall:
        item = super().close(status)
        self.events.out.append(
            events.CustomToolCallInputDone(
                sequence_number=self.events.next(),
                item_id=self.id,
                output_index=self.output_index,
                input=item.input,
            )
        )
        self._done(item)
        return item
