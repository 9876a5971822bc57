"""Calls written as JSON objects between markers: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.sdk import CallPiece, ToolDefinition
from gateway.sdk.constraints import Const, Constraint, Regex, arguments_constraint
from gateway_parsers.kit.choice_reader import ChoiceReader
from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.constrain import calls_of
from gateway_parsers.kit.json_call_reader import JsonCallReader
from gateway_parsers.kit.json_shape import JsonShape
from gateway_parsers.kit.python_reader import PythonReader, PythonShape
from gateway_parsers.kit.syntax import Accept, CallReader, CallSyntax
from gateway_parsers.kit.tag_reader import TagReader
from gateway_parsers.kit.tags import TagShape
from gateway_parsers.kit.template import constraints, fill, in_order


class JsonCalls(JsonShape, frozen=True, kw_only=True):
    """Data of families whose calls are JSON objects between markers; a `CallSyntax`.

    `before`, `between` and `after` are what the model writes next to the markers. Reading does not depend on them.
    """

    before: str = "\n"
    after: str = "\n"
    between: str = "\n"
    opening: str = ""
    """Written before calls if the start is not a marker."""
    listed: bool = False
    """Whether calls are in one JSON list inside one pair of markers."""
    reads_python: PythonShape | None = None
    """Python calls of offered tools after the same marker, if it is no bracket."""
    reads_tags: CallSyntax | None = None
    """Calls in tags after the same marker, which some models of the family write."""
    reads_named: TagShape | None = None
    """Calls of offered tools after the same marker that start with the name."""
    head: str = '{"name": {name}, "arguments": '
    """A call's object up to its arguments. `{index}` counts calls from 0."""

    @property
    def trigger(self) -> str | None:
        if self.start:
            return self.start
        return self._opening + self.head.partition("{name}")[0]

    @property
    def sectioned(self) -> bool:
        return self.listed

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        python, tags, named = self.reads_python, self.reads_tags, self.reads_named
        if marker in self.bare or not (python or tags or named):
            return JsonCallReader(self, marker, accept, tools)

        def offered(name: str) -> bool:
            return name in tools and (accept is None or bool(accept(name)))

        def choose(first: str) -> CallReader:
            if first == "<" and tags is not None:
                return tags.reader(marker, accept, tools)
            if first.isalpha() or first == "_":
                if python is not None:
                    return PythonReader(python, marker, tools.__contains__, tools)
                if named is not None:
                    return TagReader(named, marker, offered, tools, names=tuple(tools))
            return JsonCallReader(self, marker, accept, tools)

        return ChoiceReader(marker, choose, mark=self.start if tags is not None else "")

    def write(self, calls: Sequence[CallPiece]) -> str:
        objects = [
            fill(self.head, {"name": quoted(call.name), "index": str(index)})
            + (call.arguments.strip() or "{}")
            + "}"
            for index, call in enumerate(calls)
        ]
        if self.listed:
            return self._opening + ", ".join(objects) + self._closing
        return self.between.join(self._opening + each + self._closing for each in objects)

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        opening, closing = Const(self._opening), Const(self._closing)
        options: list[Constraint] = []
        for tool in tools:
            head = constraints(self.head, {"name": quoted(tool.name), "index": Regex("[0-9]+")})
            arguments = arguments_constraint(tool, schema=schemas or bool(tool.strict))
            parts = [*head, arguments, Const("}")]
            options.append(in_order(parts if self.listed else [opening, *parts, closing]))
        separator = ", " if self.listed else self.between
        calls = calls_of(options, separator=separator, parallel=parallel)
        return in_order([opening, calls, closing]) if self.listed else calls

    @property
    def _opening(self) -> str:
        start = self.start + self.before if self.start else self.opening
        return start + "[" * self.listed

    @property
    def _closing(self) -> str:
        return "]" * self.listed + (self.after + self.end if self.end else "")
