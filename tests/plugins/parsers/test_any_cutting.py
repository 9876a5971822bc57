"""Properties of the machine on random and on broken outputs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.base.deltas import TextDelta
from gateway.plugins.protocols import CallPiece, EngineOutput, Piece, ReasoningPiece, TextPiece

FORMATS = st.sampled_from(["qwen3", "deepseek_r1", "think", "plain"])
TAILS = st.sampled_from(["text", "reasoning", "unknown"])
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
FRAGMENTS = st.sampled_from(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "<think", "</", "<", ">", "<tool_", "call>",
        "\n", "\n\n", " ", "\t", "word", "zwei Wörter", "`", '"', "'", "\\", "\\n", "\\u00e9", "\\ud83d", "\\ude00",
        "{", "}", "[", "]", ":", ",", '"name"', '"arguments"', '"parameters"', '"function"', '"f"', '"g"', "null", "12",
        '{"name": "f", "arguments": ', '{"name": "g"', '"{\\"a\\": ', '{"a": "', "}}", "</tool_call>\n", CALL,
        CALL.replace("\n", ""), '{"arguments": {"name": "x"}, "name": "late"}', "\x00", "\ud800", "😀",
    ]
)  # fmt: skip
GARBAGE = st.lists(FRAGMENTS, max_size=25).map("".join)
CUTS = st.lists(st.integers(1, 12), min_size=1, max_size=8)


def cut(raw: str, lengths: list[int]) -> list[str]:
    pieces = []
    at = turn = 0
    while at < len(raw):
        length = lengths[turn % len(lengths)]
        pieces.append(raw[at : at + length])
        at += length
        turn += 1
    return pieces


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raw=GARBAGE, lengths=CUTS, name=FORMATS, tail=TAILS, tools=st.sampled_from([(), ("f",)]))
@example(
    raw='<tool_call>{"name": "f", "arguments": "{\\"a\\',
    lengths=[1],
    name="qwen3",
    tail="text",
    tools=(),
)
def test_how_the_output_is_cut_does_not_matter(
    reading: Any, raw: str, lengths: list[int], name: str, tail: Any, tools: tuple[str, ...]
) -> None:
    whole = reading.parser_of(name, tail=tail, tools=tools)
    parts = reading.parser_of(name, tail=tail, tools=tools)
    single = reading.parser_of(name, tail=tail, tools=tools)
    items = reading.fold(reading.deltas_of(whole, [raw]))
    assert reading.fold(reading.deltas_of(parts, cut(raw, lengths))) == items
    assert reading.fold(reading.deltas_of(single, list(raw))) == items
    assert whole.recoveries == parts.recoveries == single.recoveries


@settings(max_examples=200, deadline=None)
@given(raw=GARBAGE, lengths=CUTS, name=FORMATS, tail=TAILS)
def test_every_text_delta_is_a_slice_of_the_output_at_its_start(
    reading: Any, raw: str, lengths: list[int], name: str, tail: Any
) -> None:
    end = 0
    for delta in reading.deltas_of(reading.parser_of(name, tail=tail), cut(raw, lengths)):
        if isinstance(delta, TextDelta):
            assert delta.text == raw[delta.start : delta.start + len(delta.text)]
            assert delta.start >= end
            end = delta.start + len(delta.text)


@settings(max_examples=200, deadline=None)
@given(raw=GARBAGE, lengths=CUTS)
def test_the_plain_format_gives_every_character_back_at_once(
    reading: Any, raw: str, lengths: list[int]
) -> None:
    parser = reading.parser_of("plain")
    for piece in cut(raw, lengths):
        deltas = parser.feed(EngineOutput(text=piece))
        assert [delta.text for delta in deltas] == [piece]
    assert list(parser.finish("stop")) == []
    assert parser.recoveries == 0


@settings(max_examples=200, deadline=None)
@given(raw=GARBAGE, tail=TAILS)
def test_without_tools_call_syntax_is_text_to_the_letter(reading: Any, raw: str, tail: Any) -> None:
    raw = raw.replace("think", "thunk")
    items = reading.fold(
        reading.deltas_of(reading.parser_of(tail="text", parse_tools=False), list(raw))
    )
    assert items == ([("text", raw)] if raw else [])


@settings(max_examples=200, deadline=None)
@given(raw=GARBAGE, lengths=CUTS, tail=TAILS)
def test_parsers_of_one_format_share_no_state(
    reading: Any, raw: str, lengths: list[int], tail: Any
) -> None:
    first, second = (reading.parser_of(tail=tail) for _ in range(2))
    alone = reading.deltas_of(reading.parser_of(tail=tail), cut(raw, lengths))
    deltas: tuple[list[Any], list[Any]] = ([], [])
    for piece in cut(raw, lengths):
        deltas[0].extend(first.feed(EngineOutput(text=piece)))
        deltas[1].extend(second.feed(EngineOutput(text=piece)))
    deltas[0].extend(first.finish("stop"))
    deltas[1].extend(second.finish("stop"))
    assert deltas == (alone, alone)


WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<`\"'"), min_size=1, max_size=30
).map(lambda text: text.strip())  # fmt: skip
SAID = WORDS.filter(bool)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab<>/_name", max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "name", "arguments", "</tool_call>"]), JSON)


def pieces_of() -> st.SearchStrategy[list[Piece]]:
    import json

    calls = st.builds(
        CallPiece,
        SAID.filter(lambda name: "\\" not in name),
        st.builds(json.dumps, ARGUMENTS, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 2])),
    )  # fmt: skip
    rest = st.lists(st.builds(TextPiece, SAID) | calls, max_size=5)
    thought = st.lists(st.builds(ReasoningPiece, SAID), max_size=1)
    return st.builds(lambda first, then: [*first, *then], thought, rest).filter(_texts_apart)


def _texts_apart(pieces: list[Piece]) -> bool:
    """Two texts in a row are one text to any reader."""
    return not any(
        isinstance(one, TextPiece) and isinstance(two, TextPiece) for one, two in pairwise(pieces)
    )


@pytest.mark.parametrize("tail", ["text", "reasoning", "unknown"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=pieces_of(), lengths=CUTS)
@pytest.mark.slow
def test_what_is_written_reads_back(
    reading: Any, pieces: list[Piece], lengths: list[int], tail: Any
) -> None:
    raw = reading.format_of().write(pieces, tail=tail)
    parser = reading.parser_of(tail=tail)
    expected: list[tuple[str, str]] = []
    for piece in pieces:
        match piece:
            case ReasoningPiece(text):
                expected.append(("reasoning", text))
            case TextPiece(text):
                expected.append(("text", text))
            case CallPiece(name, arguments):
                expected += reading.call(name, arguments)
    assert reading.fold(reading.deltas_of(parser, cut(raw, lengths))) == expected
    assert parser.recoveries == 0
