"""Calls with the name in a separate header: kimi, deepseek, mistral and similar families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.sdk import CallPiece, ToolDefinition
from gateway.sdk.constraints import Const, Constraint, Regex, arguments_constraint
from gateway_parsers.kit.choice_reader import ChoiceReader
from gateway_parsers.kit.constrain import calls_of
from gateway_parsers.kit.header_reader import HeaderReader
from gateway_parsers.kit.header_shape import HeaderShape
from gateway_parsers.kit.json_call_reader import JsonCallReader
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.kit.template import constraints, fill, in_order


class HeaderCalls(HeaderShape, frozen=True, kw_only=True):
    """Data of families whose calls have headers; a `CallSyntax`. The templates are what the model writes."""

    head: str
    """Start of a call, with `{name}` and optionally `{index}`, which counts calls from 0, or `{id}`."""
    tail: str
    """End of a call."""
    opening: str = ""
    closing: str = ""
    between: str = ""
    ids: str = ""
    """A pattern of the ids, if the head has any."""
    reads_json: JsonCalls | None = None
    """JSON calls after the same marker, which other versions of the family write."""

    @property
    def trigger(self) -> str | None:
        return self.starts[0]

    @property
    def sectioned(self) -> bool:
        return bool(self.section)

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        other = self.reads_json
        if other is None:
            return HeaderReader(self, marker, accept, tools)

        def choose(first: str) -> CallReader:
            if first in "[{":
                return JsonCallReader(other, marker, accept, tools)
            return HeaderReader(self, marker, accept, tools)

        return ChoiceReader(marker, choose)

    def write(self, calls: Sequence[CallPiece]) -> str:
        written = [
            fill(self.head, {"name": call.name, "index": str(index), "id": f"{index:010}"})
            + (call.arguments.strip() or "{}")
            + self.tail
            for index, call in enumerate(calls)
        ]
        return self.opening + self.between.join(written) + self.closing

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options = tuple(
            in_order(
                [
                    *constraints(
                        self.head,
                        {"name": tool.name, "index": Regex("[0-9]+"), "id": Regex(self.ids)},
                    ),
                    arguments_constraint(tool, schema=schemas or bool(tool.strict)),
                    Const(self.tail),
                ]
            )
            for tool in tools
        )
        calls = calls_of(options, separator=self.between, parallel=parallel)
        return in_order([Const(self.opening), calls, Const(self.closing)])
