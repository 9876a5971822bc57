"""Recognizing constraints that are small and simple enough to compile quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.base.constraints import (
    Const,
    Constraint,
    FreeText,
    Grammar,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.engines.xgrammar import nodes

_SMALL = 200
"""Maximum number of nodes of a constraint that is compiled directly, and of schemas in it."""
_FEW = 32
_SHORT = 64
"""Maximum length of a text that ends or interrupts free text, in characters."""
_LOOPS = 2
"""Maximum number of parts that repeat without a bound. With more of them, one text may match in very many ways."""
_PLAIN = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "enum", "const", "nullable"}
)
"""Keywords whose grammar is unambiguous, and proportional in size to the schema."""
_SAYS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "$schema", "$id", "$comment"}
)
_SCALARS = frozenset({"null", "boolean", "integer", "number", "string"})


def is_small(constraint: Constraint) -> bool:
    """Whether compiling the constraint, and sampling with it, is certain to be quick."""
    loops = free = 0
    for number, node in enumerate(nodes(constraint)):
        if number >= _SMALL:
            return False
        match node:
            case JsonSchema(schema):
                if not _is_plain(schema):
                    return False
            case Regex(pattern):
                signs = sum(map(pattern.count, "*+?"))
                if len(pattern) > 64 or signs > 2 or any(map(pattern.count, "({")):
                    return False
            case Const(text):
                if len(text) > 10_000:
                    return False
            case OneOf(options):
                if len(options) > _FEW:
                    return False
            case Grammar():
                return False
            case FreeText(until):
                free += until is None
                if free > 1 or len(until or "") > _SHORT:
                    return False
            case Triggered(trigger, _):
                if len(trigger) > _SHORT:
                    return False
            case Repeat(body, least, most):
                loops += most is None
                if loops > _LOOPS or max(least, most or 0) > 1 or not _begins_with_text(body):
                    return False
            case _:
                pass
    return True


def _begins_with_text(constraint: Constraint) -> bool:
    """Whether all texts that satisfy the constraint begin with a fixed text, so that none of them is empty."""
    while isinstance(constraint, Sequence) and constraint.parts:
        constraint = constraint.parts[0]
    return isinstance(constraint, Const) and constraint.text != ""


def _is_plain(root: Mapping[str, Any]) -> bool:
    pending: list[Any] = [root]
    number = optional = 0
    while pending:
        schema = pending.pop()
        number += 1
        if number > _SMALL:
            return False
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, Mapping):
            return False
        for keyword, value in schema.items():
            if keyword in _SAYS_NOTHING:
                continue
            if keyword == "anyOf" and _is_nullable(value):
                pending += value
            elif keyword not in _PLAIN:
                return False
            elif keyword == "properties" and isinstance(value, Mapping):
                pending += value.values()
                optional = len(value) - len(schema.get("required") or ())
                if optional > _FEW or any(len(name) > 256 for name in value):
                    return False
            elif keyword in ("items", "additionalProperties"):
                pending.append(value)
            elif keyword in ("enum", "const", "required", "type"):
                listed = value if isinstance(value, list) else [value]
                if len(listed) > (_SMALL if keyword == "required" else _FEW):
                    return False
                if not all(isinstance(each, str | int | float | None) for each in listed):
                    return False
                if any(isinstance(each, str) and len(each) > 256 for each in listed):
                    return False
    return True


def _is_nullable(members: Any) -> bool:
    """Whether the alternatives differ in their first character."""
    if not isinstance(members, list) or not 0 < len(members) <= 4:
        return False
    kinds = [member.get("type") if isinstance(member, Mapping) else None for member in members]
    scalars = [kind for kind in kinds if isinstance(kind, str) and kind in _SCALARS]
    return len(scalars) >= len(members) - 1 and len(set(scalars)) == len(scalars)
