"""Redaction: what is found does not depend on how the output is cut."""

from __future__ import annotations

import re
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import (
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from gateway_redact import RedactConfig, RedactingFilter, Redaction

PATTERNS = st.lists(
    st.sampled_from(
        [r"\d{4}", r"\b\d+\b", "ab+", "(?<=a)b", "b(?!a)", "^a", "a$", r"\Aab", r"b\Z", "a.c", "(a|ab)(c|bcd)", "x*"]
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip
TEXT = st.text(alphabet="abc1 \n", max_size=60)
CUTS = st.lists(st.integers(1, 7), max_size=30)


def cut(text: str, cuts: list[int]) -> list[str]:
    parts = []
    for size in cuts:
        parts.append(text[:size])
        text = text[size:]
    return [part for part in (*parts, text) if part]


def joined(deltas: list[Delta]) -> list[tuple[type, str]]:
    return [
        (kind, "".join(getattr(delta, "text", "") for delta in group))
        for kind, group in groupby(deltas, type)
    ]


@given(patterns=PATTERNS, text=TEXT, cuts=CUTS, window=st.integers(1, 9))
def test_a_filtered_stream_is_the_filter_of_the_whole(
    patterns: list[str], text: str, cuts: list[int], window: int
) -> None:
    redaction = Redaction([re.compile(each) for each in patterns], "#", window=window)
    filtering = RedactingFilter(redaction)
    out: list[Delta] = []
    for part in cut(text, cuts):
        out += filtering.feed([TextDelta(part)])
    out += filtering.finish()
    whole = redaction.apply(text)
    assert joined(out) == ([(TextDelta, whole)] if whole else [])


@given(cuts=CUTS, window=st.integers(19, 40))
def test_a_number_that_is_split_over_deltas_is_found(cuts: list[int], window: int) -> None:
    redaction = Redaction([re.compile(r"\d{4}(?: ?\d{4}){3}")], "#", window=window)
    filtering = RedactingFilter(redaction)
    text = "pay with 4111 1111 1111 1111 today"
    out = [delta for part in cut(text, cuts) for delta in filtering.feed([TextDelta(part)])]
    out += filtering.finish()
    assert joined(out) == [(TextDelta, "pay with # today")]


def test_each_kind_of_output_is_a_text_of_its_own() -> None:
    filtering = RedactingFilter(Redaction([re.compile("ab")], "#", window=5))
    fed: list[Delta] = [
        ReasoningDelta("xa"),
        ReasoningDelta("b"),
        TextDelta("a"),
        CallStarted("ab"),
        CallArgumentsDelta('{"x": "a'),
        CallArgumentsDelta('b"}'),
        CallEnded(),
        TextDelta("b"),
    ]
    out = [shown for delta in fed for shown in filtering.feed([delta])]
    out += filtering.finish()
    assert joined(out) == [
        (ReasoningDelta, "x#"),
        (TextDelta, "a"),
        (CallStarted, ""),
        (CallArgumentsDelta, '{"x": "#"}'),
        (CallEnded, ""),
        (TextDelta, "b"),
    ]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"patterns": ["("]}, "not a regular expression"),
        ({"patterns": ["a"], "replacement": '"'}, "quotes"),
        ({"patterns": ["a"], "replacement": "\n"}, "control characters"),
    ],
)
def test_a_mistake_in_the_settings_is_named(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        RedactConfig(**settings)  # type: ignore[arg-type]
