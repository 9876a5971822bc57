"""Writing and constraining calls that are written as tags."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain

from gateway.constraints import Const, Constraint, FreeText, OneOf, Regex, Repeat
from gateway.protocols.output import CallPiece
from gateway.protocols.prompt import ToolDefinition
from gateway_parsers.kit.choice_reader import ChoiceReader
from gateway_parsers.kit.constrain import repeated
from gateway_parsers.kit.json_call_reader import JsonCallReader
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.parameters import Parameter, in_any_order, parameters_of, value_constraint
from gateway_parsers.kit.schema import STRING, type_of
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.kit.tag_reader import TagReader
from gateway_parsers.kit.tags import TagShape
from gateway_parsers.kit.template import constraints, fill, in_order, members_of_call

_TYPES = {"integer": "number"}


class TagCalls(TagShape, frozen=True, kw_only=True):
    """A family whose calls are tags; a `CallSyntax`. The templates are what the model writes."""

    head: str
    """What begins a call, with `{name}` and perhaps `{index}`, which counts the calls from 1."""
    parameter: str
    """One parameter, with `{key}` and `{value}`, and perhaps `{string}` (`true`, `false`) or `{type}`."""
    tail: str
    """What ends a call."""
    opening: str = ""
    """What begins a section of calls; empty: each call stands by itself."""
    closing: str = ""
    between: str = "\n"
    reads_json: JsonCalls | None = None
    """Calls as JSON behind the same marker, which some fine-tunes of the family write."""
    spellings: tuple[TagCalls, ...] = ()
    """Other spellings of the same tags, which are read and never written."""

    @property
    def starts(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(chain(super().starts, *(each.starts for each in self.spellings)))
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
        if marker == self.call_open and self.start != self.call_open:
            # It begins a call outside of its section only if the tool exists: it may be prose on how calls are written.
            return TagReader(self, marker, accept or (tools.__contains__ if tools else None), tools)
        other = self.reads_json
        if other is None:
            return TagReader(self, marker, accept, tools)

        def choose(first: str) -> CallReader:
            if first in "[{":
                return JsonCallReader(other, marker, accept)
            return TagReader(self, marker, accept, tools)

        return ChoiceReader(marker, choose)

    def write(self, calls: Sequence[CallPiece]) -> str:
        written = [self._call(call, index) for index, call in enumerate(calls, 1)]
        return self.opening + self.between.join(written) + self.closing

    def _call(self, call: CallPiece, index: int) -> str:
        arguments = members_of_call(call.arguments)
        parts = [fill(self.head, {"name": self._attribute(call.name), "index": str(index)})]
        if arguments is None:
            parts.append(call.arguments)
        for key, value in (arguments or {}).items():
            kind = type_of(value)
            said = value if kind == "string" else json.dumps(value, ensure_ascii=False)
            fields = {"key": self._attribute(key), "value": said, "type": _TYPES.get(kind, kind)}
            parts.append(fill(self.parameter, {**fields, "string": str(kind == "string").lower()}))
        return "".join((*parts, self.tail))

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
                    self._parameters(tool, schema=schemas or tool.strict),
                    Const(self.tail),
                ]
            )
            for tool in tools
        )
        call = options[0] if len(options) == 1 else OneOf(options)
        calls = repeated(call, separator=self.between) if parallel else call
        return in_order([Const(self.opening), calls, Const(self.closing)])

    def _parameters(self, tool: ToolDefinition, *, schema: bool) -> Constraint:
        parameters = parameters_of(tool)
        if parameters is None:
            return Repeat(self._any_parameter(), min=0)
        return in_any_order(parameters, lambda each: self._parameter(each, schema=schema))

    def _parameter(self, parameter: Parameter, *, schema: bool) -> Constraint:
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
        self, parameter: Parameter, types: frozenset[str], *, schema: bool, string: bool | None
    ) -> Constraint:
        """One parameter. `string`: what its markup says of a value that may be a string or not; None: it says what is so."""
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
