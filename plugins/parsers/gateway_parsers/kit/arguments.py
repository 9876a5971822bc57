"""Converts arguments that a model writes one by one to the JSON text of one object."""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from gateway.sdk.json_schema import ANY_TYPE, JsonType, SchemaNode
from gateway_parsers.kit.argument_types import STRING, MemberTypes
from gateway_parsers.kit.coercion import MixedText, coerced, quoted, string_value
from gateway_parsers.kit.literal_syntax import PYTHON
from gateway_parsers.kit.literals import LiteralValue
from gateway_parsers.kit.markers import WHITESPACE

Trim: TypeAlias = Literal["nothing", "newline", "all"]
"""Which white space around a value is markup: none, one line break on each side, or all."""
Hint: TypeAlias = Literal["string", "json"] | None
"""The type of a value as declared by the markup: a string, or JSON; None if not declared."""


class ArgumentWriter:
    """Builds the arguments of one call. The reader takes and clears `parts`.

    Strings are emitted as they arrive, JSON-escaped. A value that may have another type is held until its type is
    known.
    """

    __slots__ = (
        "_choices",
        "_count",
        "_held",
        "_hint",
        "_key",
        "_members",
        "_mixed",
        "_nameless",
        "_pending",
        "_said",
        "_spaces",
        "_started",
        "_trim",
        "_types",
        "_waits",
        "_written",
        "parts",
    )

    def __init__(self, schema: SchemaNode, trim: Trim, *, count: int = 0) -> None:
        """`count`: number of members already written by others."""
        self.parts: list[str] = []
        self._members = MemberTypes(schema)
        self._key = ""
        self._choices: tuple[str, ...] = ()
        self._said: list[str] | None = None
        """The text of the open value, if it may decide about the types of later ones."""
        self._trim = trim
        self._count = count
        self._written = count
        """Number of members in the output so far."""
        self._waits = False
        """Whether the type of the open value depends on a later one."""
        self._hint: Hint = None
        self._pending: list[tuple[str, Hint, str]] = []
        """Members whose types depend on later ones: keys, hints and texts."""
        self._types: frozenset[JsonType] = frozenset()
        self._mixed: MixedText | None = None
        self._held: list[str] | None = None
        self._spaces: list[str] = []
        self._started = False
        self._nameless = ""
        """The key of an open value without a name, which is left out if the value is empty, too."""

    @property
    def count(self) -> int:
        """Number of values that have started."""
        return self._count

    @property
    def empty(self) -> bool:
        """Whether no value has started yet."""
        return not self._count

    def key(self, name: str, hint: Hint = None) -> None:
        """Start a value under `name`."""
        written = self._prefix(name)
        self._waits = self._members.undecided(name)
        self._nameless = "" if name else written
        if name and not self._waits:
            self.parts.append(written)
            self._written += 1
        self._count += 1
        self._started = False
        self._spaces = []
        types = self._members.of(name)
        self._choices = self._members.choices
        self._key = name
        self._said = [] if self._members.narrows else None
        self._types = types = _hinted(types, hint)
        self._hint = hint
        self._mixed = None
        if self._nameless or self._waits:
            self._held = []
            return
        if types == STRING:
            self._held = None
            self.parts.append('"')
            return
        self._held = []
        if "string" in types or not (types or hint):
            self._mixed = MixedText(types or ANY_TYPE)

    def member(self, name: str, as_json: str) -> None:
        """Write a whole value under `name`."""
        self.parts += (self._prefix(name), as_json)
        self._written += 1
        self._count += 1

    def text(self, piece: str) -> None:
        """Append to the open value."""
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
            self._append("".join((*self._spaces, body)) if self._spaces else body)
            self._spaces = []
        if len(body) < len(piece):
            self._spaces.append(piece[len(body) :])

    def _append(self, text: str) -> None:
        if self._said is not None:
            self._said.append(text)
        if self._held is None:
            self.parts.append(_escaped(text))
            return
        self._held.append(text)
        if self._mixed is not None and not self._mixed.may_be_other(text):
            self.parts += ('"', _escaped("".join(self._held)))
            self._held = None

    def end(self, *, closed: bool = True) -> None:
        """End the open value. If not `closed`, its end marker is missing, and trailing white space is markup."""
        spaces = "".join(self._spaces)
        if self._trim == "all" or not closed:
            spaces = ""
        elif self._trim == "newline":
            spaces = spaces.removesuffix("\n")
        if self._held is None:
            self.parts.append(_escaped(spaces) + '"')
        else:
            text = "".join(self._held) + spaces
            if self._waits:
                self._pending.append((self._key, self._hint, text))
                self._held = None
                return
            if self._nameless:
                if not text.strip():
                    self._count -= 1
                    self._held = None
                    return
                self.parts.append(self._nameless)
                self._written += 1
            types = self._types or (ANY_TYPE if self._mixed is not None else frozenset())
            self.parts.append(_value(text, self._types, types, self._choices))
        self._held = None
        if self._said is not None:
            narrower = self._members.learn(self._key, "".join(self._said))
            if narrower and self._pending:
                self.release(every=False)

    def release(self, *, every: bool) -> None:
        """Write the members that waited for others: every one, or those whose types are known now."""
        pending, self._pending = self._pending, []
        for key, hint, text in pending:
            if not every and self._members.undecided(key):
                self._pending.append((key, hint, text))
                continue
            known = _hinted(self._members.of(key), hint)
            mixed = "string" in known or not (known or hint)
            types = known or (ANY_TYPE if mixed else frozenset())
            self.parts += (self._prefix(key), _value(text, known, types, self._members.choices))
            self._written += 1

    def _prefix(self, key: str) -> str:
        return f"{', ' if self._written else '{'}{quoted(key)}: "

    def finish(self) -> None:
        """End the arguments."""
        self.release(every=True)
        self.parts.append("}" if self._count else "{}")


def _hinted(types: frozenset[JsonType], hint: Hint) -> frozenset[JsonType]:
    """The types of a value, of which the markup says something."""
    if hint == "string" and (not types or "string" in types):
        return STRING
    return types - STRING if hint == "json" else types


def _value(
    text: str, known: frozenset[JsonType], types: frozenset[JsonType], choices: tuple[str, ...]
) -> str:
    """The JSON text of a value. `known`: the types that the schema allows, `choices`: the texts that it lists."""
    if text in choices and "string" in types:
        return quoted(text)
    untyped = not known and text.strip() == "None"  # Python's spelling, like True
    return "null" if untyped else typed(text, types)


def typed(text: str, types: frozenset[JsonType]) -> str:
    """The JSON text of the value that `text` represents. Where strings are not allowed, lists and objects may be in
    Python syntax."""
    as_json = coerced(text, types)
    if as_json.startswith('"') and "string" not in types and text.lstrip()[:1] in ("{", "["):
        stripped = text.strip()
        if '\\"' in stripped and (unescaped := _unescaped(stripped, types)) is not None:
            return unescaped
        value = LiteralValue(PYTHON, None)
        end, literal = value.read(stripped, 0, final=True)
        if value.done and end == len(stripped):
            return literal
    return as_json


def _unescaped(text: str, types: frozenset[JsonType]) -> str | None:
    """The value of JSON text that the model escaped as if it were inside a string; None if it is not such text."""
    inner = string_value(f'"{text}"', strict=False)
    if inner is None:
        return None
    as_json = coerced(inner, types)
    return None if as_json.startswith('"') else as_json


def _escaped(text: str) -> str:
    """`text` escaped for use inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
