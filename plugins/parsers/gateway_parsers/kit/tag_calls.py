"""Writes and constrains calls in tags."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from gateway.sdk import CallPiece, ToolDefinition
from gateway.sdk.constraints import Const, Constraint, FreeText, OneOf, Regex, Repeat
from gateway.sdk.json_schema import type_of
from gateway_parsers.kit.argument_types import STRING
from gateway_parsers.kit.choice_reader import ChoiceReader
from gateway_parsers.kit.constrain import calls_of
from gateway_parsers.kit.json_call_reader import JsonCallReader
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.parameters import (
    ToolParameter,
    in_any_order,
    parameters_of,
    value_constraint,
)
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.kit.tag_reader import TagReader
from gateway_parsers.kit.tags import TagShape
from gateway_parsers.kit.template import constraints, fill, in_order, written_arguments

_TYPES = {"integer": "number"}


class TagCalls(TagShape, frozen=True, kw_only=True):
    """Data of families whose calls are tags; a `CallSyntax`. The templates are what the model writes."""

    head: str
    """Start of a call, with `{name}` and optionally `{index}`, which counts calls from 1."""
    parameter: str
    """One parameter, with `{key}`, `{value}`, and optionally `{string}` (`true`, `false`) or `{type}`."""
    tail: str
    """End of a call."""
    opening: str = ""
    """Start of a section of calls; empty if calls have no section."""
    closing: str = ""
    between: str = "\n"
    reads_json: JsonCalls | None = None
    """JSON calls after the same marker, which some fine-tunes of the family write."""
    spellings: tuple[TagCalls, ...] = ()
    """Other spellings of the same tags, read but never written."""

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(chain(super().starts, *(each.starts for each in self.spellings)))
        )

    @property
    def unsectioned_starts(self) -> frozenset[str]:
        """Starts of calls without their outer markers."""
        own = (self.call_open,) if self.call_open != self.start else ()
        return frozenset(chain(own, *(each.unsectioned_starts for each in self.spellings)))

    @property
    def text_starts(self) -> frozenset[str]:
        """Starts that count in text only, because in reasoning they are more often quoted than written."""
        return self.unsectioned_starts | (
            frozenset((self.start,)) if self.prefaces else frozenset()
        )

    @property
    def ends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(chain(super().ends, *(each.ends for each in self.spellings))))

    @property
    def trigger(self) -> str | None:
        return self.start

    @property
    def sectioned(self) -> bool:
        return bool(self.opening)

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        for each in self.spellings:
            if marker in each.starts:
                return each.reader(marker, accept, tools)
        lone = marker in self.unsectioned_starts
        if lone and accept is None and tools:
            # Outside its section it starts a call only if the tool exists; otherwise it may be prose about calls.
            accept = tools.__contains__
        other = self.reads_json

        def tags() -> TagReader:
            reader = TagReader(self, marker, accept, tools)
            reader.verbatim = lone or marker in (*self.prefaces, *self.prose_starts)
            return reader

        def choose(first: str) -> CallReader:
            if other is not None and first in "[{":
                return JsonCallReader(other, marker, accept, tools)
            return tags()

        wrapped = self.call_open.endswith(">")  # a whole tag, which JSON may follow
        if other is None or (lone and not wrapped):
            return tags()
        return ChoiceReader(marker, choose, mark=self.call_open if wrapped and not lone else "")

    def write(self, calls: Sequence[CallPiece]) -> str:
        written = [self._call(call, index) for index, call in enumerate(calls, 1)]
        return self.opening + self.between.join(written) + self.closing

    def _call(self, call: CallPiece, index: int) -> str:
        head = fill(self.head, {"name": self._attribute(call.name), "index": str(index)})
        return head + written_arguments(call.arguments, self._written_parameter) + self.tail

    def _written_parameter(self, name: str, value: Any) -> str:
        kind = type_of(value)
        written = value if kind == "string" else json.dumps(value, ensure_ascii=False)
        fields = {"key": self._attribute(name), "value": written, "type": _TYPES.get(kind, kind)}
        return fill(self.parameter, {**fields, "string": str(kind == "string").lower()})

    def _attribute(self, text: str) -> str:
        return text.replace("&", "&amp;").replace('"', "&quot;") if self.escaped else text

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options = tuple(
            in_order(
                [
                    *constraints(
                        self.head, {"name": self._attribute(tool.name), "index": Regex("[0-9]+")}
                    ),
                    self._parameters(tool, schema=schemas or bool(tool.strict)),
                    Const(self.tail),
                ]
            )
            for tool in tools
        )
        calls = calls_of(options, separator=self.between, parallel=parallel)
        return in_order([Const(self.opening), calls, Const(self.closing)])

    def _parameters(self, tool: ToolDefinition, *, schema: bool) -> Constraint:
        parameters = parameters_of(tool)
        if parameters is None:
            return Repeat(self._any_parameter(), min=0)
        return in_any_order(parameters, lambda each: self._parameter(each, schema=schema))

    def _parameter(self, parameter: ToolParameter, *, schema: bool) -> Constraint:
        types = parameter.node.types()
        if not self.type_attribute or len(types) == 1:
            return self._typed(parameter, types, schema=schema, string=None)
        variants = [
            self._typed(parameter, types, schema=schema, string=string)
            for string in (True, False)
            if not types or (string and "string" in types) or (not string and types - STRING)
        ]
        return variants[0] if len(variants) == 1 else OneOf(tuple(variants))

    def _typed(
        self, parameter: ToolParameter, types: frozenset[str], *, schema: bool, string: bool | None
    ) -> Constraint:
        """The constraint on one parameter. `string`: whether the markup declares an ambiguous value a string; None: it
        states the actual type."""
        before, _, after = self.parameter.partition("{value}")
        is_string = types == STRING if string is None else string
        others = types - STRING
        kind = "string" if is_string else next(iter(others)) if len(others) == 1 else None
        values: dict[str, str | Constraint] = {
            "key": self._attribute(parameter.name),
            "string": str(is_string).lower(),
            "type": Regex("[a-z]+") if kind is None else _TYPES.get(kind, kind),
        }
        closing, until, rest = after.partition(self.value_close)
        value = value_constraint(
            parameter, closing=closing + until, until=until, schema=schema, string=string
        )
        return in_order([*constraints(before, values), value, Const(rest)])

    def _any_parameter(self) -> Constraint:
        before, _, after = self.parameter.partition("{value}")
        values: dict[str, str | Constraint] = {
            "key": Regex("[A-Za-z0-9_.-]+"),
            "string": OneOf((Const("true"), Const("false"))),
            "type": Regex("[a-z]+"),
        }
        rest = after.partition(self.value_close)[2]
        return in_order(
            [*constraints(before, values), FreeText(until=self.value_close), Const(rest)]
        )
