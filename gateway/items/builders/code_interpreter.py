"""Builder of `code_interpreter_call` items."""

from __future__ import annotations

from typing import Literal

from gateway.items.builders.item import EndStatus, ServerCallBuilder
from gateway.items.string_field import StringFieldReader
from gateway.plugins.protocols import CodeDetails, ToolResult
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

    def begin(self, output_index: int) -> None:
        super().begin(output_index)
        if self.events is not None:
            self.events.added(self._item("in_progress"), output_index)
            self._progress(events.CodeInterpreterCallInProgress)

    def write(self, text: str) -> None:
        super().write(text)
        self._write_code(self._reader.feed(text))

    def _write_code(self, code: str) -> None:
        self._code.append(code)
        if code and (collector := self.events) is not None:
            collector.out.append(
                events.CodeInterpreterCallCodeDelta(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    delta=code,
                )
            )

    def written(self) -> None:
        self._end_code(cut=False)

    def _end_code(self, *, cut: bool) -> None:
        """Complete the code, unless it is complete already."""
        if self._written:
            return
        self._written = True
        self._write_code(self._reader.finish(cut=cut))
        if (collector := self.events) is not None:
            collector.out.append(
                events.CodeInterpreterCallCodeDone(
                    sequence_number=collector.next(),
                    item_id=self.id,
                    output_index=self.output_index,
                    code="".join(self._code),
                )
            )

    def running(self) -> None:
        self._progress(events.CodeInterpreterCallInterpreting)

    def progressed(self) -> None:
        self._progress(events.CodeInterpreterCallInterpreting)

    def finish(self, result: ToolResult) -> items.CodeInterpreterCall:
        self._progress(events.CodeInterpreterCallCompleted)
        item = self._item("failed" if result.failed else "completed", result)
        self._done(item)
        return item

    def close(self, status: EndStatus) -> items.CodeInterpreterCall:
        self._end_code(cut=True)
        item = self._item("incomplete")
        self._done(item)
        return item
