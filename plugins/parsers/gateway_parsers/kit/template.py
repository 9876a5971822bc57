"""Small markup templates, such as `<function={name}>`, filled for writing and split for constraints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from gateway.sdk.constraints import Const, Constraint
from gateway.sdk.constraints import Sequence as InOrder
from gateway.sdk.wire import is_too_deep

_FIELD = re.compile(r"\{(name|key|value|string|type|index|id)\}")


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with its fields replaced. Braces without a field's name are kept."""
    return _FIELD.sub(lambda hit: values.get(hit[1], hit[0]), template)


def members_of_call(arguments: str) -> dict[str, Any] | None:
    """A call's arguments by name; None if they are not a JSON object and can only be written verbatim."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and not is_too_deep(value) else None


def written_arguments(
    arguments: str, written: Callable[[str, Any], str], *, separator: str = ""
) -> str:
    """A call's arguments, each as `written` returns it for its name and value; unchanged if they are not a JSON object."""
    members = members_of_call(arguments)
    if members is None:
        return arguments
    return separator.join(written(name, value) for name, value in members.items())


def constraints(template: str, values: Mapping[str, str | Constraint]) -> list[Constraint]:
    """`template` as the parts of a sequence."""
    parts: list[Constraint] = []
    for index, piece in enumerate(_FIELD.split(template)):
        value: str | Constraint = values.get(piece, piece) if index % 2 else piece
        parts.append(Const(value) if isinstance(value, str) else value)
    return parts


def in_order(parts: Sequence[Constraint]) -> Constraint:
    """A sequence of the parts, with adjacent constants merged and nested sequences flattened."""
    flat = chain.from_iterable(
        part.parts if isinstance(part, InOrder) else (part,) for part in parts
    )
    merged: list[Constraint] = []
    for part in flat:
        if isinstance(part, Const):
            if merged and isinstance(merged[-1], Const):
                merged[-1] = Const(merged[-1].text + part.text)
                continue
            if not part.text:
                continue
        merged.append(part)
    return merged[0] if len(merged) == 1 else InOrder(tuple(merged))
