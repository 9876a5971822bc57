"""Constraints on a model's output, independent of any engine's syntax.

A `Constraint` is a small tree. An output format builds it from the request's tools and schema, in the format's markup
(`Sequence` of `Const("<tool_call>\\n")`, `JsonSchema(...)`, ...). An engine translates the tree into a form that it can
enforce (llama.cpp: a GBNF grammar; vLLM: structured outputs or a structural tag). An engine that cannot enforce a
constraint raises `gateway.base.errors.Unsupported`; no part is silently dropped.
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
    """Any text up to and including the first occurrence of `until`. If `until` is None, any text to the end."""

    until: str | None = None


class Sequence(Struct, frozen=True, tag=True):
    """The parts one after the other."""

    parts: tuple[Constraint, ...]


class OneOf(Struct, frozen=True, tag=True):
    """Any one of the options."""

    options: tuple[Constraint, ...]


class Repeat(Struct, frozen=True, tag=True):
    """The body, repeated at least `min` and at most `max` times (None: without limit)."""

    body: Constraint
    min: int = 1
    max: int | None = None


class Triggered(Struct, frozen=True, tag=True):
    """Free text in which each occurrence of `trigger` must begin `body`. `body` starts with the text of the trigger.

    For `tool_choice: auto` with strict schemas: the model need not call a tool, but each call that it makes is valid.
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
