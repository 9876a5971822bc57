"""Reads MiniMax M3's calls: all tags have a prefix, and parameters are elements named after them, which may nest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping
from functools import cached_property
from typing import ClassVar, Final, Protocol, TypeAlias

from msgspec import Struct

from gateway.sdk import TextDelta, ToolDefinition
from gateway.sdk.json_schema import ANY_TYPE, SchemaNode
from gateway_parsers.kit.argument_types import STRING, MemberTypes, arguments_schema
from gateway_parsers.kit.arguments import ArgumentWriter, typed
from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.free_text import custom_arguments, is_custom, without_margins
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerContext, MarkerSet
from gateway_parsers.kit.odd_names import has_odd_names, more_of_known, more_of_quoted
from gateway_parsers.kit.reader import StepReader, skip
from gateway_parsers.kit.syntax import MAX_NAME, Accept
from gateway_parsers.kit.tags import attribute_of

_ANYWHERE: Final = MarkerContext()
_NAME: Final = re.compile(r"[^\s<>{}\[\]()\"'|]+")
MAX_DEPTH: Final = 128
"""Deepest nesting of elements."""
_PARAMETER: Final = "parameter"
"""The tag that other versions of the family give parameters, with their name as an attribute."""
_TEXT: Final = "$text"
"""The member for text between the elements of an object."""
_Element: TypeAlias = "tuple[str, list[str], list[_Element]]"
"""An element: its name, its text and its children."""


class NestedTagShape(Struct, frozen=True, kw_only=True, dict=True):
    """Markup of such calls."""

    prefix: str

    @property
    def start(self) -> str:
        return f"{self.prefix}<tool_call>"

    @property
    def end(self) -> str:
        return f"{self.prefix}</tool_call>"

    @cached_property
    def tags(self) -> MarkerSet:
        return MarkerSet((Marker(f"{self.prefix}<", "open"), Marker(f"{self.prefix}</", "close")))


class NestedTags(Protocol):
    """What the reader needs to know of the markup."""

    @property
    def prefix(self) -> str: ...

    @property
    def end(self) -> str: ...

    @property
    def tags(self) -> MarkerSet:
        """Starts of tags: `open` and `close`."""
        ...


class NestedTagReader(StepReader):
    """The reader of `NestedTagShape`. Top-level strings are emitted as they arrive, other parameters when they end."""

    __slots__ = (
        "_called",
        "_calls",
        "_closing",
        "_count",
        "_elements",
        "_in_call",
        "_inner",
        "_lead",
        "_node",
        "_open",
        "_opening",
        "_shape",
        "_tag",
        "_tools",
        "_united",
        "_writer",
    )

    _tag_end: ClassVar = re.compile(r"[>\n]")
    """The end of a tag, or what is in none."""

    def __init__(
        self,
        shape: NestedTags,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        super().__init__(marker, accept, NestedTagReader._text)
        self._shape = shape
        self._tools = tools
        self._calls = 0
        self._in_call = False
        self._called = ""
        self._lead: list[str] = []
        """Text in the open call outside of its parameters."""
        self._tag = ""
        self._opening = ""
        self._closing = False
        self._begin_call(SchemaNode({}))

    def begin_in_tag(self, tag: str) -> None:
        """Start within a call's own tag, whose beginning is `tag`."""
        self.verbatim = True
        self._tag = tag
        self._step = NestedTagReader._in_tag

    def _begin_call(self, node: SchemaNode) -> None:
        self._node = node
        self._open: list[_Element] = []
        self._writer: ArgumentWriter | None = None
        """Writer of the open parameter, if it is a string."""
        self._inner: Counter[str] = Counter()
        """Names of the elements within that string that are open."""
        self._count = 0
        self._united = MemberTypes(node).narrows
        """Whether the schema is a union, so that other parameters may tell a parameter's type."""
        self._elements: list[_Element] = []
        """Parameters of a union, which are written at the end."""

    @property
    def _in_value(self) -> bool:
        """Whether a parameter is open."""
        return bool(self._open)

    def finish(self, *, stopped: bool) -> None:
        if self.status != "more":
            return
        if self.undecided and self._in_call:
            self._end_before_arguments(stopped=stopped)
            return
        if self.undecided:
            if self._calls and self._shape.end.startswith(self.raw.strip(WHITESPACE)):
                self._done()  # an end marker that is cut off
            else:
                self._fail()
            return
        self.recoveries += 1
        self.unclosed = True
        self._write_union()
        if stopped and self._in_call and not self._in_value and self._step is NestedTagReader._text:
            self._end_call()
        self.status = "done"

    def _end_before_arguments(self, *, stopped: bool) -> None:
        """Handle an output that ends between a call's name and its first parameter."""
        self.recoveries += 1
        self.unclosed = True
        if stopped and self._step is NestedTagReader._text:
            self._end_call()
        else:
            text = without_margins("".join(self._lead))
            custom = is_custom(self._tools.get(self._called))
            self._begin()
            self._arguments(custom_arguments(text)[:-2] if text and custom else text)
        if self.status == "more":
            self.status = "done"

    def _open_call(self, name: str) -> None:
        """Handle the name of a call, which starts with its arguments."""
        self._in_call = True
        self._called = name
        self._lead = []
        self._begin_call(arguments_schema(self._tools.get(name)))

    def _begin(self) -> None:
        """Start the open call, if it has not started."""
        if self.undecided:
            self._accept = None
            self._start(self._called)

    def _text(self, text: str, pos: int, final: bool) -> int:
        """Read text between two tags."""
        hit = self._shape.tags.find(text, pos, _ANYWHERE, final=final)
        end = hit[0] if hit is not None else len(text)
        if hit is None and not final:
            end -= self._shape.tags.held(text, pos, _ANYWHERE)
        if final and hit is None and not self._in_call and not self.undecided:
            end -= self._shape.tags.held(text, pos, _ANYWHERE)
            if not text[pos:end].strip(WHITESPACE):
                return len(text)  # an end marker that is cut off
            end = len(text)
        if end > pos and not self._in_value:
            start = skip(text, pos, WHITESPACE)
            if start < end and not self._in_call:
                return self._outside(start)
            if self._in_call:
                self._lead.append(text[pos:end])
        elif end > pos:
            self._append(text[pos:end])
        if hit is None:
            return end
        self._tag = ""
        self._opening = hit[1].text
        self._closing = hit[1].action == "close"
        if not self.undecided and not self._in_call:
            self._undecide(text[end : end + len(hit[1].text)])
        self._step = NestedTagReader._in_tag
        return end + len(hit[1].text)

    def _outside(self, pos: int) -> int:
        """Handle text where a call is expected."""
        if self.undecided:
            self._fail()
        else:
            self._done()
        return pos

    def _in_tag(self, text: str, pos: int, final: bool) -> int:
        hit = self._tag_end.search(text, pos)
        end = hit.start() if hit is not None else len(text)
        room = 2 * MAX_NAME - len(self._tag)
        if end - pos > room or (hit is not None and hit[0] != ">"):
            end = min(end, pos + room)
            if self._in_call:
                self.recoveries += 1
                if self._in_value:
                    self._append(self._opening + self._tag + text[pos:end])
                self._step = NestedTagReader._text
                return end
            return self._outside(end)
        self._tag += text[pos:end]
        if hit is None:
            return end
        more = self._more_of_tag(text, end, final)
        if more is None:
            return end
        if more:
            self._tag += text[end : end + more]
            return end + more
        self._step = NestedTagReader._text
        tag = self._tag.strip()
        if not self._in_call:
            self._outer_tag(tag)
        elif self._closing:
            self._close(tag)
        else:
            self._open_element(tag)
        return end + 1

    def _more_of_tag(self, text: str, pos: int, final: bool) -> int | None:
        """The number of characters from the `>` at `pos` on that belong to the tag; None if more text is needed."""
        if not self._in_call or (self._writer is not None and not self._closing):
            return 0
        if '"' in self._tag or "'" in self._tag:
            return more_of_quoted(self._tag, text, pos, final=final)
        names = self._node.resolved().get("properties")
        if not isinstance(names, dict) or not has_odd_names(names):
            return 0
        return more_of_known(self._tag.strip(), names, text, pos, final=final)

    def _outer_tag(self, tag: str) -> None:
        if self._closing and tag == "tool_call" and self._calls:
            self.status = "done"
            self.undecided = False
            return
        if tag == "tool_call" and not self._closing:
            self.recoveries += 1
            return
        name = attribute_of(tag.removeprefix("invoke"), "name")
        named = tag.startswith("invoke") and _NAME.fullmatch(name) and len(name) <= MAX_NAME
        if self._closing or not named or not self._accepts(name):
            self._fail()
            return
        self._open_call(name)

    def _open_element(self, name: str) -> None:
        if len(self._open) >= MAX_DEPTH:
            self.recoveries += 1
            return
        if self._writer is None and name.startswith(f"{_PARAMETER} "):
            name = attribute_of(name.removeprefix(_PARAMETER), "name") or name
        if self._writer is not None:  # an element inside a string is text
            self._writer.text(f"{self._shape.prefix}<{name}>")
            self._inner[name] += 1
            return
        self._begin()
        self._open.append((name, [], []))
        if len(self._open) == 1:
            node = None if self._united else self._node.member(name)
            if node is not None and node.types() == STRING:
                self._writer = ArgumentWriter(self._node, "nothing", count=self._count)
                self._writer.key(name)
                self._flush()

    def _append(self, text: str) -> None:
        if self._writer is not None:
            self._writer.text(text)
            self._flush()
        else:
            self._open[-1][1].append(text)

    def _flush(self) -> None:
        if self._writer is not None and self._writer.parts:
            self._arguments("".join(self._writer.parts))
            self._writer.parts.clear()

    def _close(self, name: str) -> None:
        names = [element[0] for element in self._open]
        if name == _PARAMETER and names and name not in names and not self._inner[name]:
            name = names[-1]
        if name in ("invoke", "tool_call") and name not in names:
            self.recoveries += bool(self._open) or name == "tool_call"
            while self._open:
                self._end_element()
            self._end_call()
            if name == "tool_call" and self.status == "more":
                self.status = "done"
            return
        if name not in names:
            if self._writer is not None and self._inner[name]:
                self._inner[name] -= 1
                self._writer.text(f"{self._shape.prefix}</{name}>")
                return
            self.recoveries += 1
            if self._writer is not None:  # a misspelt end
                self._end_element()
            return
        while self._open[-1][0] != name:
            self.recoveries += 1
            self._end_element()
        self._end_element()

    def _end_element(self) -> None:
        element = self._open.pop()
        if self._open:
            self._open[-1][2].append(element)
            return
        if self._writer is not None:
            self._end_string()
            self._inner.clear()
        elif self._united:
            self._elements.append(element)
        else:
            self._write_element(element, self._node)
            self._count += 1

    def _end_string(self) -> None:
        """End the open string, which is left out if it has neither a name nor text."""
        writer = self._writer
        assert writer is not None
        writer.end()
        self._flush()
        self._writer = None
        self._count = writer.count

    def _write_element(self, element: _Element, node: SchemaNode) -> None:
        as_json = _json(element, node.member(element[0]))
        self._arguments(f"{', ' if self._count else '{'}{quoted(element[0])}: {as_json}")

    def _write_union(self) -> None:
        """Write the parameters of a union."""
        elements, self._elements = self._elements, []
        node = _branch(self._node, elements)
        for element in elements:
            self._begin()
            self._write_element(element, node)
            self._count += 1

    def _end_call(self) -> None:
        self._write_union()
        text = without_margins("".join(self._lead))
        if text and not self._count:
            if not is_custom(self._tools.get(self._called)):
                self._fail()  # its arguments are not known
                return
            self._begin()
            self._arguments(custom_arguments(text))
            text = ""
        else:
            self._begin()
            self._arguments("}" if self._count else "{}")
        self._end()
        if text:
            self.out.append(TextDelta(text))
        self._in_call = False
        self._calls += 1

    def _done(self) -> None:
        self.status = "done"
        self.unclosed = True
        self.recoveries += 1

    def _fail(self) -> None:
        self.status = "failed"
        self.unclosed = self._calls > 0


def _json(element: _Element, node: SchemaNode | None) -> str:
    """The JSON value of an element: its children as a list or an object, or its text."""
    _, texts, children = element
    types = node.types() if node is not None else frozenset()
    if not children:
        text = "".join(texts)
        if not text.strip() and types and "string" not in types:
            return "[]" if "array" in types else "{}" if "object" in types else "null"
        return typed(text, types or ANY_TYPE)
    items = all(child[0] == "item" for child in children)
    if "array" in types or (not types and items):
        inner = node.items() if node is not None else None
        text = "".join(texts).strip(WHITESPACE)
        return (
            "["
            + ", ".join(
                [*(_json(child, inner) for child in children), *([quoted(text)] if text else [])]
            )
            + "]"
        )
    if node is not None:
        node = _branch(node, children)
    grouped: dict[str, list[str]] = {}
    for child in children:
        member = node.member(child[0]) if node is not None else None
        grouped.setdefault(child[0], []).append(_json(child, member))
    if text := "".join(texts).strip(WHITESPACE):
        grouped[free_name(_TEXT, grouped)] = [quoted(text)]
    members = (
        f"{quoted(key)}: {values[0] if len(values) == 1 else '[' + ', '.join(values) + ']'}"
        for key, values in grouped.items()
    )
    return "{" + ", ".join(members) + "}"


def _branch(node: SchemaNode, elements: list[_Element]) -> SchemaNode:
    """The branch of a union that these members belong to, or the union."""
    members = MemberTypes(node)
    if members.narrows:
        for name, texts, children in elements:
            if not children:
                members.learn(name, "".join(texts))
    return members.branch


def free_name(name: str, taken: Container[str]) -> str:
    """`name`, with as many `$` before it as it needs to be none of `taken`."""
    while name in taken:
        name = f"${name}"
    return name
