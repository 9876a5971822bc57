"""Gemma's calls: `call:NAME{key:<|"|>text<|"|>,other:3}` between markers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from gateway.sdk import CallPiece, ToolDefinition, Unsupported
from gateway.sdk.constraints import Const, Constraint, FreeText, Repeat
from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import arguments_schema
from gateway_parsers.kit.brace_input import BraceInput, is_object
from gateway_parsers.kit.constrain import calls_of, repeated
from gateway_parsers.kit.free_text import is_custom
from gateway_parsers.kit.literal_syntax import LiteralSyntax, Quote
from gateway_parsers.kit.literals import LiteralValue
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerContext, MarkerSet
from gateway_parsers.kit.names import offered_name
from gateway_parsers.kit.parameters import (
    ToolParameter,
    in_any_order,
    members_of,
    parameters_of,
    value_constraint,
)
from gateway_parsers.kit.reader import StepReader, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept, CallReader
from gateway_parsers.kit.template import in_order, members_of_call

_WORD: Final = r"[^\s<>{}\[\]()\"'|:,]+"
_NAME: Final = re.compile(rf":?(?:call:|call\Z)?:?\s*((?:{_WORD}:)*{_WORD})")
_MAX_DEPTH: Final = 8
_MAX_GAP: Final = 32
"""Characters of white space between two brackets around arguments."""


class BraceCalls(Struct, frozen=True, kw_only=True, dict=True):
    """Data of families with this syntax; a `CallSyntax`."""

    start: str
    end: str
    mark: str
    """Delimits a string. Nothing in it is escaped."""
    fresh_starts: tuple[str, ...] = ()
    """Starts of calls of offered tools that lack `start`. They count only where nothing precedes them in their block."""

    @property
    def starts(self) -> tuple[str, ...]:
        return (self.start, *self.fresh_starts)

    @property
    def ends(self) -> tuple[str, ...]:
        return (self.end,)

    @property
    def bare(self) -> frozenset[str]:
        return frozenset(self.fresh_starts)

    @property
    def markup(self) -> tuple[str, ...]:
        return (self.start, self.end, self.mark)

    @property
    def trigger(self) -> str | None:
        return self.start

    @property
    def sectioned(self) -> bool:
        return False

    @cached_property
    def literals(self) -> LiteralSyntax:
        return LiteralSyntax(
            quotes=(Quote(self.mark, False), Quote('"', True), Quote("'", True), Quote("`", True)),
            stops=self.stops,
            lenient_mark=self.mark,
            coerces_strings=True,
        )

    @cached_property
    def stops(self) -> MarkerSet:
        return MarkerSet((Marker(self.end, "close"), Marker(self.start, "stop")))

    def reader(
        self, marker: str, accept: Accept | None, tools: Mapping[str, ToolDefinition]
    ) -> CallReader:
        if marker in self.fresh_starts:
            accept = tools.__contains__
        return BraceReader(self, marker, accept, tools)

    def write(self, calls: Sequence[CallPiece]) -> str:
        written = []
        for call in calls:
            arguments = members_of_call(call.arguments)
            arguments_text = call.arguments if arguments is None else self._written_value(arguments)
            written.append(f"{self.start}call:{call.name}{arguments_text}{self.end}")
        return "".join(written)

    def _written_value(self, value: Any) -> str:
        match value:
            case str():
                return self.mark + value + self.mark
            case dict():
                items = (f"{key}:{self._written_value(item)}" for key, item in value.items())
                return "{" + ",".join(items) + "}"
            case list():
                return "[" + ",".join(map(self._written_value, value)) + "]"
            case _:
                return json.dumps(value)

    def constraint(
        self, tools: Sequence[ToolDefinition], *, parallel: bool, schemas: bool
    ) -> Constraint:
        options = tuple(
            in_order(
                [
                    Const(f"{self.start}call:{tool.name}{{"),
                    self._members(
                        tool, parameters_of(tool), _MAX_DEPTH, schema=schemas or bool(tool.strict)
                    ),
                    Const("}" + self.end),
                ]
            )
            for tool in tools
        )
        return calls_of(options, separator="", parallel=parallel)

    def _members(
        self, tool: ToolDefinition, members: list[ToolParameter] | None, depth: int, *, schema: bool
    ) -> Constraint:
        if members is None or depth == 0:
            raise Unsupported(
                f"The parameters of the tool {tool.name!r} are not listed under 'properties', or nest too deep: this"
                " model writes calls in a syntax of its own, in which such a call cannot be enforced.",
                param="tools",
            )

        def one(each: ToolParameter) -> Constraint:
            return in_order([Const(f"{each.name}:"), self._value(tool, each, depth, schema=schema)])

        return in_any_order(members, one, separator=",")

    def _value(
        self, tool: ToolDefinition, each: ToolParameter, depth: int, *, schema: bool
    ) -> Constraint:
        types = each.node.types()
        if not types or "string" in types:
            value = value_constraint(each, closing=self.mark, until=self.mark, schema=schema)
            return in_order([Const(self.mark), value])
        if "object" in types:
            inner = self._members(tool, members_of(each.node), depth - 1, schema=schema)
            return in_order([Const("{"), inner, Const("}")])
        if "array" in types:
            items = ToolParameter("", each.node.items() or SchemaNode({}), required=True)
            item = self._value(tool, items, depth - 1, schema=schema) if depth else FreeText()
            several = Repeat(repeated(item, separator=","), min=0, max=1)
            return in_order([Const("["), several, Const("]")])
        return value_constraint(each, closing="", until="", schema=schema)


class BraceReader(StepReader):
    """The reader of `BraceCalls`. A call starts at its brace. Arguments are converted to JSON as they arrive."""

    __slots__ = ("_called", "_ends", "_head", "_input", "_shape", "_tools", "_value")

    def __init__(
        self,
        shape: BraceCalls,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        super().__init__(marker, accept, BraceReader._name)
        self._shape = shape
        self._tools = tools
        self._head = ""
        self._ends = "{" if marker in shape.fresh_starts else "{(<\n"
        """What may follow the name."""
        self._value = LiteralValue(shape.literals, None)
        self._called = ""
        self._input = BraceInput(shape.literals, SchemaNode({}))

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self._step is BraceReader._free_text:
            self._end_free(stopped=stopped)
            self.unclosed = True
            self.status = "done"
            return
        if self.undecided:
            self._end_at_name(stopped=stopped)
            return
        self.recoveries += 1
        self.unclosed = True
        self.status = "done"
        if stopped and self._step is BraceReader._body and self._value.may_close:
            self._arguments(self._value.closing())  # only closing brackets are missing
            self._end()

    def _end_at_name(self, *, stopped: bool) -> None:
        """Handle an output that ends before a call is certain. It is a call if it ends with a tool's name."""
        head = self._head[
            : len(self._head) - self._shape.stops.held(self._head, 0, MarkerContext())
        ]
        hit = _NAME.fullmatch(head.strip())
        if (
            "<" not in self._ends
            or not stopped
            or hit is None
            or hit[1] not in self._tools
            or not self._start(hit[1])
        ):
            self.status = "failed"
            return
        self._arguments("{}")
        self._end()
        self.recoveries += 1
        self.unclosed = True
        self.status = "done"

    def _name(self, text: str, pos: int, final: bool) -> int:
        if not self._head:
            pos = skip(text, pos, WHITESPACE)
        room = MAX_NAME - len(self._head)
        reach = range(pos, min(pos + room + 1, len(text)))
        end = next((at for at in reach if text[at] in self._ends), len(text))
        if end - pos > room:
            self.status = "failed"
            return pos + room
        self._head += text[pos:end]
        if end == len(text):
            return end
        inner = self._inner_bracket(text, end, final)
        hit = _NAME.fullmatch(self._head.strip())
        if hit is not None:
            called = self._tool(hit[1])
            if is_custom(self._tools.get(called)) and "<" in self._ends:
                if inner is None:
                    return end
                as_object = is_object(self._shape.literals, text, inner, final=final)
                if as_object is None:
                    return end
                if not as_object:
                    return self._begin_free(called, text, end, final)
        if text[end] == "\n":
            self._head += "\n"
            return end + 1
        bare = text[end] == "<"
        if bare:
            if not final and self._shape.stops.begins_at(text, end):
                return end
            if self._shape.stops.at(text, end) is None:
                self.status = "failed"
                return end
        if inner is None:
            return end
        called = self._tool(hit[1]) if hit is not None else ""
        if not self._start(called):
            self.status = "failed"
            return end
        if bare:
            self.recoveries += 1
            self._arguments("{}")
            self._end()
            self._step = BraceReader._after
            return end
        schema = arguments_schema(self._tools.get(called))
        first = next(iter(schema.resolved().get("properties") or ()), "argument_1")
        self._value = LiteralValue(self._shape.literals, schema, first_name=first)
        self._step = BraceReader._body
        self.recoveries += inner > end
        if text[inner] == "(":
            self.recoveries += 1
            self._arguments(self._value.read("{", 0, final=False)[1])
            return inner + 1
        return inner

    @staticmethod
    def _inner_bracket(text: str, pos: int, final: bool) -> int | None:
        """The bracket around the arguments: the one at `pos`, or a brace after it; None if more text is needed."""
        if text[pos] not in "{(":
            return pos
        following = skip(text, pos + 1, WHITESPACE)
        if following - pos > _MAX_GAP:
            return pos
        if following == len(text):
            return pos if final else None
        return following if text[following] == "{" else pos

    def _tool(self, name: str) -> str:
        """The tool that a name refers to, which may have a namespace."""
        if name in self._tools or ":" not in name:
            return offered_name(name, self._tools)
        if name.partition(":")[0] in self._tools:
            return ""  # what follows is no name
        last = name.rpartition(":")[2]
        guesses = (name.replace(":", "__"), last)
        return next(
            (guess for guess in guesses if guess in self._tools), name if not self._tools else last
        )

    def _begin_free(self, name: str, text: str, pos: int, final: bool) -> int:
        """Begin a call of a custom tool, unless the call ends at `pos`."""
        if not final and self._shape.stops.begins_at(text, pos):
            return pos
        if not self._accepts(name):
            self.status = "failed"
            return pos
        self._called = name
        self._input = BraceInput(self._shape.literals, arguments_schema(self._tools[name]))
        self._step = BraceReader._free_text
        return pos

    def _free_text(self, text: str, pos: int, final: bool) -> int:
        """Read what is written for a custom tool."""
        stops = self._shape.stops
        hit = stops.find(text, pos, MarkerContext(), final=final)
        end = hit[0] if hit is not None else len(text)
        if hit is None and not final:
            end -= stops.held(text, pos, MarkerContext())
        self._write_input(self._input.feed(text[pos:end]))
        if hit is not None:
            self._end_free(stopped=True)
            self._step = BraceReader._after
        return end

    def _write_input(self, arguments: str) -> None:
        if self.undecided and arguments:
            self._accept = None
            self._start(self._called)
        self._arguments(arguments)

    def _end_free(self, *, stopped: bool) -> None:
        arguments = self._input.end(stopped=stopped)
        self.recoveries += self._input.repairs
        if self.undecided and not arguments:
            self._accept = None
            self._start(self._called)
        self._write_input(arguments)
        if stopped:
            self._end()

    def _body(self, text: str, pos: int, final: bool) -> int:
        value = self._value
        pos, as_json = value.read(text, pos, final=final)
        self._arguments(as_json)
        if value.done or value.interrupted:
            self.recoveries += bool(value.repairs) or value.interrupted
            self._arguments(value.closing() if value.interrupted else "")
            self._end()
            self._step = BraceReader._after
        return pos

    def _after(self, text: str, pos: int, final: bool) -> int:
        """After the arguments: the end marker, possibly after a superfluous bracket."""
        start = skip(text, pos, WHITESPACE + "})")
        if start == len(text):
            return start
        marker = self._shape.stops.at(text, start)
        if marker is None and self._shape.stops.begins_at(text, start):
            return len(text) if final else start  # an end marker that is cut off or incomplete
        self.status = "done"
        if marker is not None and marker.action == "close":
            return start + len(marker.text)
        self.unclosed = True
        self.recoveries += 1
        return start
