"""Builder of `code_interpreter_call` items."""

from __future__ import annotations

from typing import Literal

from gateway.assembly.item_builders.announced import Announced
from gateway.assembly.item_builders.item import EndStatus, ServerCallBuilder
from gateway.assembly.string_field import StringFieldReader
from gateway.protocols import CodeDetails, ToolResult
from gateway.wire import events, items


class CodeInterpreterCallBuilder(ServerCallBuilder):
    """Builds a `code_interpreter_call` for code that the gateway runs."""

    def __init__(
        self, item_id: str, name: str, container_id: str, *, shows_outputs: bool = True
    ) -> None:
        super().__init__(item_id, name)
        self._container_id = container_id
        self._shows_outputs = shows_outputs
        self._reader = StringFieldReader("code")
        self._code: list[str] = []
        self._written = False

    def _item(
        self,
        status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"],
        result: ToolResult | None = None,
    ) -> items.CodeInterpreterCall:
        container_id, outputs = self._container_id, None
        if result is not None and isinstance(result.details, CodeDetails):
            container_id = result.details.container_id or container_id
            outputs = result.details.outputs(result.images) if self._shows_outputs else None
        return items.CodeInterpreterCall(
            id=self.id,
            status=status,
            code="".join(self._code),
            container_id=container_id,
            outputs=outputs,
        )

    def write(self, text: str) -> None:
        super().write(text)
        self._write_code(self._reader.feed(text))

    def _write_code(self, code: str) -> None:
        self._code.append(code)

    def written(self) -> None:
        self._end_code(cut=False)

    def _end_code(self, *, cut: bool) -> bool:
        """Complete the code. Returns False if it was complete already."""
        if self._written:
            return False
        self._written = True
        self._write_code(self._reader.finish(cut=cut))
        return True

    def finish(self, result: ToolResult) -> items.CodeInterpreterCall:
        return self._item("failed" if result.failed else "completed", result)

    def close(self, status: EndStatus) -> items.CodeInterpreterCall:
        self._end_code(cut=True)
        return self._item("incomplete")


class AnnouncedCodeInterpreterCall(Announced, CodeInterpreterCallBuilder):
    """Announces a call of the code interpreter and its code."""

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        self._added(self._item("in_progress"))
        self._progress(events.CodeInterpreterCallInProgress)

    def _write_code(self, code: str) -> None:
        super()._write_code(code)
        if code:
            self.events.out.append(
                events.CodeInterpreterCallCodeDelta(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    delta=code,
                )
            )

    def _end_code(self, *, cut: bool) -> bool:
        ended = super()._end_code(cut=cut)
        if ended:
            self.events.out.append(
                events.CodeInterpreterCallCodeDone(
                    sequence_number=self.events.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    code="".join(self._code),
                )
            )
        return ended

    def running(self) -> None:
        self._progress(events.CodeInterpreterCallInterpreting)

    def progressed(self) -> None:
        self._progress(events.CodeInterpreterCallInterpreting)

    def finish(self, result: ToolResult) -> items.CodeInterpreterCall:
        self._progress(events.CodeInterpreterCallCompleted)
        item = super().finish(result)
        self._done(item)
        return item

    def close(self, status: EndStatus) -> items.CodeInterpreterCall:
        item = super().close(status)
        self._done(item)
        return item
