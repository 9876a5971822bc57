"""Writes and constrains calls in Python syntax."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.sdk import CallPiece, ToolDefinition, Unsupported
from gateway.sdk.constraints import Const, Constraint, JsonSchema, custom_schema
from gateway_parsers.kit.choice_reader import ChoiceReader
from gateway_parsers.kit.constrain import calls_of
from gateway_parsers.kit.json_call_reader import JsonCallReader
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.parameters import ToolParameter, in_any_order, parameters_of
from gateway_parsers.kit.python_reader import PythonReader, PythonShape
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.kit.template import in_order, written_arguments


class PythonCalls(PythonShape, frozen=True, kw_only=True):
    """Data of families whose calls are Python; a `CallSyntax`. The texts are written around and between calls."""

    opening: str
    closing: str
    between: str = ", "
    reads_json: JsonCalls | None = None
    """JSON calls after the same marker, which the family writes if prompted to."""

    @property
    def trigger(self) -> str | None:
        return self.start if self.start and self.opening.startswith(self.start) else None

    @property
    def sectioned(self) -> bool:
        return True

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        other = self.reads_json
        if other is None:
            return PythonReader(self, marker, accept, tools)
        if marker == "{":
            return JsonCallReader(other, marker, accept, tools)

        def choose(first: str) -> CallReader:
            if first == "{":
                return JsonCallReader(other, marker, accept, tools)
            return PythonReader(self, marker, accept, tools)

        passed = WHITESPACE if marker in self.bare else WHITESPACE + "["
        return ChoiceReader(marker, choose, passed=passed)

    def write(self, calls: Sequence[CallPiece]) -> str:
        def one(name: str, value: Any) -> str:
            return f"{name}={literal(value)}"

        written = (
            f"{call.name}({written_arguments(call.arguments, one, separator=', ')})"
            for call in calls
        )
        return self.opening + self.between.join(written) + self.closing

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options: list[Constraint] = []
        for tool in tools:
            parameters = parameters_of(tool)
            if parameters is None:
                raise Unsupported(
                    f"The parameters of the tool {tool.name!r} are not listed under 'properties': this model writes"
                    " calls parameter by parameter, so that such a call cannot be enforced.",
                    param="tools",
                )

            def one(
                each: ToolParameter, *, schema: bool = schemas or bool(tool.strict)
            ) -> Constraint:
                return in_order([Const(f"{each.name}="), _value(each, schema=schema)])

            inner = in_any_order(parameters, one, separator=", ")
            options.append(in_order([Const(f"{tool.name}("), inner, Const(")")]))
        calls = calls_of(options, separator=self.between, parallel=parallel)
        return in_order([Const(self.opening), calls, Const(self.closing)])


def _value(parameter: ToolParameter, *, schema: bool) -> Constraint:
    """The constraint on a value. JSON is used; it differs from Python in three words, which the reader accepts."""
    if parameter.regex is not None:
        return JsonSchema(custom_schema(parameter.regex)["properties"]["input"])
    if schema:
        return JsonSchema(parameter.node.document())
    kinds = sorted(parameter.node.types())
    return JsonSchema({"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {})


def literal(value: Any) -> str:
    """A JSON value as Python source."""
    match value:
        case None | bool():
            return repr(value)
        case list():
            return "[" + ", ".join(map(literal, value)) + "]"
        case dict():
            items = (f"{literal(key)}: {literal(item)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case _:
            return json.dumps(value, ensure_ascii=False)
