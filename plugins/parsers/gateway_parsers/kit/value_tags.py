"""Writes and constrains Cohere's calls in value tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from gateway.sdk import CallPiece, ToolDefinition, Unsupported
from gateway.sdk.constraints import Const, Constraint, JsonSchema, OneOf, Regex, Repeat
from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import STRING
from gateway_parsers.kit.constrain import calls_of
from gateway_parsers.kit.parameters import (
    ToolParameter,
    in_any_order,
    members_of,
    parameters_of,
    value_constraint,
)
from gateway_parsers.kit.syntax import Accept, CallReader
from gateway_parsers.kit.template import in_order, written_arguments
from gateway_parsers.kit.value_tag_reader import (
    DICT,
    JSON,
    LIST,
    RAW,
    ValueTagReader,
    ValueTagShape,
    written_text,
    written_type,
)

_DEEPEST: Final = 6
"""Nesting up to which values are constrained member by member."""
_MAX_VALUES: Final = 100
"""Number of such members in one tool's schema, whose references may multiply them."""


class _Limit:
    """How much deeper, and into how many more members, a tool's values are constrained, and whether by their schema."""

    __slots__ = ("_deeper", "_left", "schema")

    def __init__(self, schema: bool, left: list[int], deeper: int) -> None:
        self.schema = schema
        self._left = left
        self._deeper = deeper

    def inside(self, members: int) -> _Limit | None:
        """The limit for `members` values inside; None if these are too many or too deep."""
        if not self._deeper or members > self._left[0]:
            return None
        self._left[0] -= members
        return _Limit(self.schema, self._left, self._deeper - 1)


class ValueTagCalls(ValueTagShape, frozen=True, kw_only=True):
    """Data of families with this syntax; a `CallSyntax`."""

    @property
    def starts(self) -> tuple[str, ...]:
        return (self.start, self.call_open)

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
        return (self.end, self.call_close)

    @property
    def bare(self) -> frozenset[str]:
        return frozenset()

    @property
    def markup(self) -> tuple[str, ...]:
        return (*self.starts, *self.ends, f"<{self.prefix}{self.value} ", self.value_close)

    @property
    def call_close(self) -> str:
        return f"</{self.prefix}{self.call}>"

    @property
    def value_close(self) -> str:
        return f"</{self.prefix}{self.value}>"

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
        return ValueTagReader(self, marker, accept, tools)

    def write(self, calls: Sequence[CallPiece]) -> str:
        written = (
            f'{self.call_open}id="{index}" name="{escape(call.name)}">'
            f"{written_arguments(call.arguments, self._value)}{self.call_close}"
            for index, call in enumerate(calls)
        )
        return "".join((self.start, *written, self.end))

    def _value(self, name: str | None, value: Any) -> str:
        match value:
            case dict():
                inner = "".join(self._value(key, item) for key, item in value.items())
            case list():
                inner = "".join(self._value(None, item) for item in value)
            case _:
                inner = written_text(value)
        return f"{self._tag(name, written_type(value))}{inner}{self.value_close}"

    def _tag(self, name: str | None, kind: str) -> str:
        named = "" if name is None else f'name="{escape(name)}" '
        return f'<{self.prefix}{self.value} {named}type="{kind}">'

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options: list[Constraint] = []
        for tool in tools:
            parameters = parameters_of(tool)
            if parameters is None:
                raise Unsupported(
                    f"The tool {tool.name!r} has parameters that its schema does not list under 'properties': this"
                    " model writes calls value by value, so that they cannot be enforced.",
                    param="tools",
                )

            limit = _Limit(schemas or bool(tool.strict), [_MAX_VALUES], _DEEPEST)

            def one(each: ToolParameter, limit: _Limit = limit) -> Constraint:
                return self._constrained(each.name, each, limit)

            opening: list[Constraint] = [Const(f'{self.call_open}id="'), Regex("[0-9]+")]
            name = Const(f'" name="{escape(tool.name)}">')
            inner = in_any_order(parameters, one)
            options.append(in_order([*opening, name, inner, Const(self.call_close)]))
        calls = calls_of(options, separator="", parallel=parallel)
        return in_order([Const(self.start), calls, Const(self.end)])

    def _constrained(self, name: str | None, value: ToolParameter, limit: _Limit) -> Constraint:
        """The constraint on one value, which may be written with one of several types."""
        types = value.node.types()
        if types == {"object"} and (members := members_of(value.node)) is not None:
            below = limit.inside(len(members))
            if below is not None:
                return self._object(name, members, below)
        if types == {"array"} and (items := _items(value.node)) is not None:
            below = limit.inside(1)
            if below is not None:
                node, least, most = items
                item = self._constrained(None, ToolParameter("", node, required=True), below)
                body = Repeat(item, min=least, max=most)
                return in_order([Const(self._tag(name, LIST)), body, Const(self.value_close)])
        options = [
            self._leaf(name, value, schema=limit.schema, string=string)
            for string in (True, False)
            if not types or (string and "string" in types) or (not string and types - STRING)
        ]
        return options[0] if len(options) == 1 else OneOf(tuple(options))

    def _object(
        self, name: str | None, members: Sequence[ToolParameter], limit: _Limit
    ) -> Constraint:
        body = in_any_order(members, lambda each: self._constrained(each.name, each, limit))
        return in_order([Const(self._tag(name, DICT)), body, Const(self.value_close)])

    def _leaf(
        self, name: str | None, value: ToolParameter, *, schema: bool, string: bool
    ) -> Constraint:
        """The constraint on a value without members. Objects and lists that cannot be constrained member by member are
        written as JSON."""
        tag = Const(self._tag(name, RAW if string else JSON))
        close = self.value_close
        if not string and not schema and not value.node.types():
            return in_order([tag, JsonSchema({}), Const(close)])
        return in_order(
            [tag, value_constraint(value, closing=close, until=close, schema=schema, string=string)]
        )


def _items(node: SchemaNode) -> tuple[SchemaNode, int, int | None] | None:
    """The schema of a list's items, and how many it may have; None if they differ or are not described."""
    schema = node.resolved()
    items = node.items()
    if items is None or any(
        word in schema for word in ("prefixItems", "contains", "enum", "const")
    ):
        return None
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if not isinstance(least, int) or not isinstance(most, int | None):
        return None
    return items, least, most
