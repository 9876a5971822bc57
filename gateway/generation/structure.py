"""Enforcing constraints on the final text that no text format can express."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.base.constraints import Constraint, JsonSchema, OneOf, Repeat, Sequence, Triggered
from gateway.base.errors import Unsupported
from gateway.plugins.protocols import OutputFormat, Tail, TextFormat, Turn

_STAND_IN: dict[str, Any] = {"const": "litegate: here the final text begins"}


def enforced(
    output_format: OutputFormat, turn: Turn, tail: Tail, structure: Constraint | None
) -> Constraint | None:
    """Return the constraint on the raw output. `structure`, if given, applies to the final text within it. Raises
    `Unsupported` if the output format has no final text to constrain.

    The output format makes a constraint for a placeholder JSON schema, which `structure` then replaces. Output formats,
    with their own reasoning and markers, thus support patterns, choices and grammars without special code.
    """
    if structure is None:
        return output_format.constraint(turn, tail=tail)
    asked = msgspec.structs.replace(
        turn, text_format=TextFormat(kind="json_schema", name="text", schema=_STAND_IN, strict=True)
    )
    constraint = output_format.constraint(asked, tail=tail)
    replaced = None if constraint is None else _replaced(constraint, structure)
    if constraint is None or replaced == constraint:
        raise Unsupported(
            "This model's output format has no place for a structure of the final text together with this tool_choice.",
            param=("text", "format"),
        )
    return replaced


def _replaced(tree: Constraint, structure: Constraint) -> Constraint:
    match tree:
        case JsonSchema(schema) if schema == _STAND_IN:
            return structure
        case Sequence(parts):
            return Sequence(tuple(_replaced(part, structure) for part in parts))
        case OneOf(options):
            return OneOf(tuple(_replaced(option, structure) for option in options))
        case Repeat(body, least, most):
            return Repeat(_replaced(body, structure), least, most)
        case Triggered(trigger, body):
            return Triggered(trigger, _replaced(body, structure))
        case _:
            return tree
