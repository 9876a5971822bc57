from __future__ import annotations

from typing import Any

import pytest

from gateway.base.constraints import (
    Const,
    Constraint,
    FreeText,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.base.errors import Unsupported
from gateway.generation.structure import enforced
from gateway.plugins.protocols import OutputFormat, Tail, Turn

WANTED = Regex("a+")


class Format:
    """A format whose final text stands in `shape`, at the place of None."""

    name = "test"
    keeps_special_tokens = False
    parser: Any = None
    write: Any = None

    def __init__(self, shape: Any) -> None:
        self._shape = shape

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        schema = turn.text_format.schema
        return None if schema is None or self._shape is None else self._shape(JsonSchema(schema))


@pytest.mark.parametrize(
    "shape",
    [
        lambda text: text,
        lambda text: Sequence((FreeText(until="</think>"), text)),
        lambda text: OneOf((Const("x"), Repeat(Sequence((Const("<"), text, Const(">")))))),
        lambda text: Triggered("<", Sequence((Const("<"), text))),
        lambda text: Sequence((JsonSchema({"type": "string"}), text)),
    ],
)
def test_the_structure_stands_where_the_format_has_the_final_text(shape: Any) -> None:
    output_format: OutputFormat = Format(shape)
    assert enforced(output_format, Turn(items=()), "text", WANTED) == shape(WANTED)
    assert enforced(output_format, Turn(items=()), "text", None) is None


@pytest.mark.parametrize("shape", [None, lambda text: Const("no text at all")])
def test_a_format_without_a_place_for_it_is_told(shape: Any) -> None:
    with pytest.raises(Unsupported):
        enforced(Format(shape), Turn(items=()), "text", WANTED)
