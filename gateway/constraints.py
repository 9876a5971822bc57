"""What an output must look like, said without any engine's syntax.

A `Constraint` is a small tree. A format builds it from the request's tools and schema in its own markup (`Sequence` of
`Const("<tool_call>\\n")`, `JsonSchema(...)`, ...); an engine translates the tree into what it can enforce (llama.cpp: a
GBNF grammar; vLLM: structured outputs or a structural tag). An engine that cannot enforce one raises
`gateway.errors.Unsupported`; nothing is dropped in silence.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct


class Const(Struct, frozen=True, tag=True):
    """Exactly this text."""

    text: str


class JsonSchema(Struct, frozen=True, tag=True):
    """One JSON value that is valid under `schema`."""

    schema: dict[str, Any]


class JsonObject(Struct, frozen=True, tag=True):
    """Any one JSON object."""


class Regex(Struct, frozen=True, tag=True):
    """Text that the pattern matches as a whole."""

    pattern: str


class Grammar(Struct, frozen=True, tag=True):
    """Text in the language of a grammar, written in `syntax`."""

    syntax: Literal["lark", "gbnf"]
    definition: str


class FreeText(Struct, frozen=True, tag=True):
    """Any text up to and including the first occurrence of `until`; any text to the end where it is None."""

    until: str | None = None


class Sequence(Struct, frozen=True, tag=True):
    """The parts one after the other."""

    parts: tuple[Constraint, ...]


class OneOf(Struct, frozen=True, tag=True):
    """Any one of the options."""

    options: tuple[Constraint, ...]


class Repeat(Struct, frozen=True, tag=True):
    """The body, at least `min` times and at most `max` times (None: without limit)."""

    body: Constraint
    min: int = 1
    max: int | None = None


class Triggered(Struct, frozen=True, tag=True):
    """Free text in which each occurrence of `trigger` must begin `body` (which starts with the trigger's own text).

    For `tool_choice: auto` with strict schemas: the model need not call, but what it calls is well-formed.
    """

    trigger: str
    body: Constraint


Constraint: TypeAlias = (
    Const
    | JsonSchema
    | JsonObject
    | Regex
    | Grammar
    | FreeText
    | Sequence
    | OneOf
    | Repeat
    | Triggered
)
