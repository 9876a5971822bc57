"""Structural tags that are small to send and would be large, or ambiguous, to enforce."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.constraints import Const, Constraint, FreeText, Repeat, Sequence, Triggered
from gateway.base.errors import InvalidRequest
from gateway.engines.small import is_small
from gateway.engines.xgrammar import nodes
from gateway.generation.structural_tags import MAX_FORMATS, structural_tag
from gateway.generation.tag_fields import MAX_MARKER

TEXT: dict[str, Any] = {"type": "any_text"}


def tag(content: dict[str, Any], *, begin: str = "<a>", end: str = "</a>") -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def made(described: dict[str, Any]) -> Constraint:
    return structural_tag({"format": described}, ())[0]


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "tags_with_separator", "separator": ""},
        {"type": "triggered_tags", "triggers": ["<"], "at_least_one": True},
    ],
)
@pytest.mark.parametrize("levels", range(1, 16))
def test_copies_are_counted_at_each_level(kind: dict[str, Any], levels: int) -> None:
    described: dict[str, Any] = {"type": "const_string", "value": ""}
    for _ in range(levels):
        described = {**kind, "tags": [tag(described)]}
    if levels > 7:
        with pytest.raises(InvalidRequest, match=f"more than {MAX_FORMATS} formats"):
            made(described)
    else:
        assert sum(1 for _ in nodes(made(described))) < 20 * MAX_FORMATS


@pytest.mark.parametrize("place", ["begin", "end", "separator", "trigger"])
def test_texts_that_mark_tags_are_short(place: str) -> None:
    long = "".join(map(chr, range(0x4E00, 0x4E00 + MAX_MARKER + 1)))
    described = {
        "begin": tag(TEXT, begin=long),
        "end": tag(TEXT, end=long),
        "separator": {"type": "tags_with_separator", "separator": long, "tags": [tag(TEXT)]},
        "trigger": {"type": "triggered_tags", "triggers": [long], "tags": [tag(TEXT, begin=long)]},
    }[place]
    with pytest.raises(InvalidRequest) as raised:
        made(described)
    assert raised.value.code == "string_above_max_length"


def many(body: Constraint, levels: int, most: int | None) -> Constraint:
    for _ in range(levels):
        body = Repeat(body, 0, most)
    return body


@pytest.mark.parametrize(
    "constraint",
    [
        many(Const("a"), 3, 1000),
        many(Const("a"), 2, None),
        Repeat(Const(""), 0, None),
        Sequence((*[Repeat(Const("a"), 0, None)] * 40, Const("b"))),
        Sequence((FreeText(), FreeText(), Const("b"))),
        Sequence((Const("a"), FreeText("x" * 65))),
        Triggered("x" * 65, Const("x" * 65)),
    ],
)
def test_what_may_be_read_in_many_ways_is_compiled_apart(constraint: Constraint) -> None:
    assert not is_small(constraint)


def test_the_arguments_of_calls_are_small() -> None:
    parameter = Sequence((Const("<parameter=a>"), FreeText("</parameter>")))
    optional = [Repeat(Sequence((Const("\n"), parameter)), 0, 1)] * 10
    assert is_small(Sequence((Const("<call>"), *optional, Repeat(parameter, 0, None))))


@given(st.integers(0, 1000), st.integers(0, 1000) | st.none())
def test_bounded_repetitions_are_never_small(least: int, most: int | None) -> None:
    small = is_small(Repeat(Const("a"), least, most))
    assert small == (max(least, most or 0) <= 1)
