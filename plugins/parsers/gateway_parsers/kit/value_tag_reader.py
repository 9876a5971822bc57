"""Reads Cohere's calls: values are tags with a name and a type, and those of objects and lists contain further ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from html import unescape
from typing import Any, ClassVar, Final

from msgspec import Struct

from gateway.sdk import ToolDefinition
from gateway.sdk.json_schema import SchemaNode
from gateway_parsers.kit.argument_types import STRING
from gateway_parsers.kit.arguments import ArgumentWriter, typed
from gateway_parsers.kit.coercion import quoted
from gateway_parsers.kit.markers import WHITESPACE, Marker, MarkerSet
from gateway_parsers.kit.nested_reader import MAX_DEPTH, NestedTagReader, free_name
from gateway_parsers.kit.syntax import MAX_NAME, Accept
from gateway_parsers.kit.tags import attribute_of

DICT: Final = "dict"
LIST: Final = "list"
JSON: Final = "json"
RAW: Final = "raw"
"""The types of values. Any other is read as `RAW`, which is a string."""


class ValueTagShape(Struct, frozen=True, kw_only=True, dict=True):
    """Markup of such calls. All tags start with `prefix`."""

    prefix: str
    section: str
    call: str
    value: str

    @property
    def start(self) -> str:
        return f"<{self.prefix}{self.section}>"

    @property
    def end(self) -> str:
        return f"</{self.prefix}{self.section}>"

    @property
    def call_open(self) -> str:
        return f"<{self.prefix}{self.call} "

    @cached_property
    def tags(self) -> MarkerSet:
        return MarkerSet((Marker(f"<{self.prefix}", "open"), Marker(f"</{self.prefix}", "close")))


class _Value(Struct):
    """A value that is open or has ended."""

    key: str
    kind: str
    text: list[str]
    members: list[_Value]

    @property
    def contains(self) -> bool:
        return self.kind in (DICT, LIST)


class ValueTagReader(NestedTagReader):
    """The reader of `ValueTagShape`. Top-level strings are emitted as they arrive, other values when they end."""

    __slots__ = ("_depth", "_markup", "_members", "_values")
    _tag_end: ClassVar = re.compile(r"[<>\n]")

    def __init__(
        self,
        shape: ValueTagShape,
        marker: str,
        accept: Accept | None,
        tools: Mapping[str, ToolDefinition],
    ) -> None:
        super().__init__(shape, marker, accept, tools)
        self._markup = shape
        if marker == shape.call_open:
            self.begin_in_tag(f"{shape.call} ")

    def _begin_call(self, node: SchemaNode) -> None:
        super()._begin_call(node)
        self._values: list[_Value] = []
        self._members = ArgumentWriter(node, "nothing")
        self._depth = 0
        """Number of values within the open string that it has opened itself."""

    @property
    def _in_value(self) -> bool:
        return bool(self._values)

    def _outer_tag(self, tag: str) -> None:
        shape = self._markup
        if self._closing and tag == shape.section and self._calls:
            self.status = "done"
            self.undecided = False
            return
        if tag == shape.section and not self._closing:
            self.recoveries += 1
            return
        name = _attribute(tag, "name").strip() if _is(tag, shape.call) else ""
        if self._closing or not name or len(name) > MAX_NAME or not self._accepts(name):
            self._fail()
            return
        self._open_call(name)

    def _open_element(self, tag: str) -> None:
        shape = self._markup
        value = self._values[-1] if self._values else None
        if value is not None and not value.contains:  # a tag inside a string is text
            self._depth += _is(tag, shape.value)
            self._append(f"<{shape.prefix}{tag}>")
            return
        if not _is(tag, shape.value) or len(self._values) >= MAX_DEPTH:
            self.recoveries += 1
            return
        self._begin()
        opened = _Value(_attribute(tag, "name"), _attribute(tag, "type") or RAW, [], [])
        self._values.append(opened)
        if value is None and not opened.contains:
            self._writer = self._members
            self._writer.key(opened.key, "json" if opened.kind == JSON else "string")
            self._flush()

    def _append(self, text: str) -> None:
        if self._writer is not None:
            self._writer.text(text)
            self._flush()
        else:
            self._values[-1].text.append(text)

    def _close(self, tag: str) -> None:
        shape = self._markup
        value = self._values[-1] if self._values else None
        if tag in (shape.call, shape.section):
            self.recoveries += value is not None or tag == shape.section
            while self._values:
                self._end_value()
            self._end_call()
            if tag == shape.section and self.status == "more":
                self.status = "done"
        elif value is None or (tag != shape.value and value.contains):
            self.recoveries += 1
        elif tag != shape.value or self._depth:
            self._depth -= tag == shape.value
            self._append(f"</{shape.prefix}{tag}>")
        else:
            self._end_value()

    def _end_value(self) -> None:
        value = self._values.pop()
        self._depth = 0
        if self._values:
            self._values[-1].members.append(value)
            return
        if self._writer is not None:
            self._end_string()
            return
        self._members.member(value.key, _json(value, self._node.member(value.key)))
        self._count = self._members.count
        self._write_members()

    def _write_union(self) -> None:
        if self._writer is None:
            self._members.release(every=True)
            self._write_members()

    def _write_members(self) -> None:
        self._arguments("".join(self._members.parts))
        self._members.parts.clear()


def _is(tag: str, name: str) -> bool:
    """Whether a tag without its prefix has this name."""
    return tag.startswith(name) and not tag[len(name) : len(name) + 1].strip(WHITESPACE)


def _attribute(tag: str, name: str) -> str:
    return unescape(attribute_of(tag, name))


def _json(value: _Value, node: SchemaNode | None) -> str:
    """The JSON text of a value."""
    types = node.types() if node is not None else frozenset()
    text = "".join(value.text)
    if not value.contains:
        if value.kind == JSON:
            return typed(text, types - STRING)
        return typed(text, types) if types and "string" not in types else quoted(text)
    if not value.members and text.strip():
        return typed(text, frozenset(("array" if value.kind == LIST else "object",)))
    if value.kind == LIST:
        inner = node.items() if node is not None else None
        items = [_json(member, inner) for member in value.members]
        if text.strip():
            items.append(quoted(text.strip()))
        return "[" + ", ".join(items) + "]"
    members: dict[str, Any] = {}
    for member in value.members:
        members[member.key] = _json(member, node.member(member.key) if node is not None else None)
    if text.strip():
        members[free_name("$text", members)] = quoted(text.strip())
    return "{" + ", ".join(f"{quoted(key)}: {each}" for key, each in members.items()) + "}"


def written_type(value: object) -> str:
    """The type with which a value of JSON is written."""
    match value:
        case dict():
            return DICT
        case list():
            return LIST
        case str():
            return RAW
        case _:
            return JSON


def written_text(value: object) -> str:
    """A value without members as it is written."""
    return value if isinstance(value, str) else json.dumps(value)
