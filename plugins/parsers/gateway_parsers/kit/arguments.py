"""Arguments that a model writes one by one, not as JSON, made into the JSON text of one object."""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from gateway_parsers.kit.coercion import MixedText, coerced, quoted
from gateway_parsers.kit.literal_syntax import PYTHON
from gateway_parsers.kit.literals import LiteralValue
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.schema import ANY, STRING, JsonType, SchemaNode

Trim: TypeAlias = Literal["nothing", "newline", "all"]
"""What of the whitespace around a value is markup: none of it, one line break on each side, or all."""
Hint: TypeAlias = Literal["string", "json"] | None
"""What the markup itself says of a value: it is a string, or it is JSON."""


class ArgumentWriter:
    """Makes one call's arguments; `parts` are taken away by the reader.

    Strings go out as they come, JSON-escaped; a value that may be something else is kept until that is clear.
    """

    __slots__ = (
        "_count",
        "_held",
        "_mixed",
        "_schema",
        "_spaces",
        "_started",
        "_trim",
        "_types",
        "parts",
    )

    def __init__(self, schema: SchemaNode, trim: Trim, *, count: int = 0) -> None:
        """`count`: how many members somebody else has written before."""
        self.parts: list[str] = []
        self._schema = schema
        self._trim = trim
        self._count = count
        self._types: frozenset[JsonType] = frozenset()
        self._mixed: MixedText | None = None
        self._held: list[str] | None = None
        self._spaces: list[str] = []
        self._started = False

    @property
    def empty(self) -> bool:
        """No value has begun yet."""
        return not self._count

    def key(self, name: str, hint: Hint = None) -> None:
        """A value begins, under `name`."""
        self.parts.append(f"{', ' if self._count else '{'}{quoted(name)}: ")
        self._count += 1
        self._started = False
        self._spaces = []
        node = self._schema.member(name)
        types = node.types() if node is not None else frozenset()
        if hint == "string":
            types = STRING
        elif hint == "json":
            types = types - STRING
        self._types = types
        self._mixed = None
        if types == STRING:
            self._held = None
            self.parts.append('"')
            return
        self._held = []
        if "string" in types or not (types or hint):
            self._mixed = MixedText(types or ANY)

    def text(self, piece: str) -> None:
        """More of the open value."""
        if not self._started:
            if self._trim == "newline" and piece[:1] == "\n":
                piece = piece[1:]
            elif self._trim == "all":
                piece = piece.lstrip(WHITESPACE)
                if not piece:
                    return
            self._started = True
        body = piece.rstrip(WHITESPACE)
        if body:
            self._say("".join((*self._spaces, body)) if self._spaces else body)
            self._spaces = []
        if len(body) < len(piece):
            self._spaces.append(piece[len(body) :])

    def _say(self, text: str) -> None:
        if self._held is None:
            self.parts.append(_escaped(text))
            return
        self._held.append(text)
        if self._mixed is not None and not self._mixed.may_be_other(text):
            self.parts += ('"', _escaped("".join(self._held)))
            self._held = None

    def end(self, *, closed: bool = True) -> None:
        """The open value ends; not `closed`: its end marker is missing, and whitespace before what follows is markup."""
        spaces = "".join(self._spaces)
        if self._trim == "all" or not closed:
            spaces = ""
        elif self._trim == "newline":
            spaces = spaces.removesuffix("\n")
        if self._held is None:
            self.parts.append(_escaped(spaces) + '"')
        else:
            text = "".join(self._held) + spaces
            types = self._types or (ANY if self._mixed is not None else frozenset())
            self.parts.append(typed(text, types))
        self._held = None

    def finish(self) -> None:
        """There are no more values."""
        self.parts.append("}" if self._count else "{}")


def typed(text: str, types: frozenset[JsonType]) -> str:
    """What `text` stands for; where no string is allowed, a list or an object may be written as Python."""
    said = coerced(text, types)
    if said.startswith('"') and "string" not in types and text.lstrip()[:1] in ("{", "["):
        stripped = text.strip()
        value = LiteralValue(PYTHON, None)
        end, literal = value.read(stripped, 0, final=True)
        if value.done and end == len(stripped):
            return literal
    return said


def _escaped(text: str) -> str:
    """The inside of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
