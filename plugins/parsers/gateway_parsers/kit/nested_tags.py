"""Writes and constrains MiniMax M3's calls: all tags have a prefix, and parameters are elements named after them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.sdk import CallPiece, ToolDefinition, Unsupported
from gateway.sdk.constraints import Const, Constraint
from gateway_parsers.kit.constrain import calls_of
from gateway_parsers.kit.nested_reader import NestedTagReader, NestedTagShape
from gateway_parsers.kit.parameters import (
    ToolParameter,
    in_any_order,
    parameters_of,
    value_constraint,
)
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.kit.template import in_order, written_arguments


class NestedTagCalls(NestedTagShape, frozen=True, kw_only=True):
    """Data of families with this syntax; a `CallSyntax`."""

    @property
    def starts(self) -> tuple[str, ...]:
        return (self.start, self.call_open)

    @property
    def call_open(self) -> str:
        """Start of a call without the outer markers."""
        return f"{self.prefix}<invoke "

    @property
    def unsectioned_starts(self) -> frozenset[str]:
        """Starts of calls without their outer markers."""
        return frozenset((self.call_open,))

    @property
    def text_starts(self) -> frozenset[str]:
        """Starts that count in text only, because in reasoning they are more often quoted than written."""
        return self.unsectioned_starts

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.end,)

    @property
    def bare(self) -> frozenset[str]:
        return frozenset()

    @property
    def markup(self) -> tuple[str, ...]:
        return (self.start, self.end, f"{self.prefix}</invoke>", self.prefix)

    @property
    def trigger(self) -> str | None:
        return self.start

    @property
    def sectioned(self) -> bool:
        return True

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        if marker == self.call_open and accept is None and tools:
            # Outside its section it is a call only if the tool exists; otherwise it may be prose about calls.
            accept = tools.__contains__
        reader = NestedTagReader(self, marker, accept, tools)
        if marker == self.call_open:
            reader.begin_in_tag("invoke ")
        return reader

    def write(self, calls: Sequence[CallPiece]) -> str:
        written = (
            f'{self.prefix}<invoke name="{call.name}">'
            f"{written_arguments(call.arguments, self._element)}{self.prefix}</invoke>"
            for call in calls
        )
        return "\n".join((self.start, *written, self.end))

    def _element(self, name: str, value: Any) -> str:
        match value:
            case dict():
                inner = "".join(self._element(key, item) for key, item in value.items())
            case list():
                inner = "".join(self._element("item", item) for item in value)
            case str():
                inner = value
            case _:
                inner = json.dumps(value)
        return f"{self.prefix}<{name}>{inner}{self.prefix}</{name}>"

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options: list[Constraint] = []
        for tool in tools:
            parameters = parameters_of(tool)
            if parameters is None or any(_nests(each) for each in parameters):
                raise Unsupported(
                    f"The tool {tool.name!r} has parameters that nest, or that its schema does not list: this model"
                    " writes them as elements within elements, which cannot be enforced.",
                    param="tools",
                )

            def one(
                each: ToolParameter, *, schema: bool = schemas or bool(tool.strict)
            ) -> Constraint:
                closing = f"{self.prefix}</{each.name}>"
                value = value_constraint(each, closing=closing, until=closing, schema=schema)
                return in_order([Const(f"{self.prefix}<{each.name}>"), value])

            opening = Const(f'{self.prefix}<invoke name="{tool.name}">')
            inner = in_any_order(parameters, one)
            options.append(in_order([opening, inner, Const(f"{self.prefix}</invoke>")]))
        calls = calls_of(options, separator="\n", parallel=parallel)
        return in_order([Const(self.start + "\n"), calls, Const("\n" + self.end)])


def _nests(parameter: ToolParameter) -> bool:
    return bool(parameter.node.types() & {"object", "array"})
