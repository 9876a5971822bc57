"""What holds for every format alike, on its own markup: written well, broken, and cut anywhere."""

from __future__ import annotations

import json
import random
import re
import zlib
from typing import Any

import pytest

from gateway.plugins.protocols import (
    CallPiece,
    EngineOutput,
    ParserContext,
    ReasoningPiece,
    TextPiece,
    ToolDefinition,
)
from gateway_parsers import FORMATS, MarkupFormat
from gateway_parsers.kit.active_markers import ActiveMarkers
from gateway_parsers.kit.machine import Machine
from gateway_parsers.spec import FormatSpec
from gateway_testing.reading import Block, blocks, check_grammar, cut, feed

TOOL = ToolDefinition(
    name="get_weather",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
    },
)
STOP = ToolDefinition(name="stop_all")
TOOLS = {tool.name: tool for tool in (TOOL, STOP)}
WEATHER = CallPiece(
    "get_weather", '{"city": "Oslo", "days": 3, "metric": true, "tags": ["a", "b"]}'
)
NOTHING = CallPiece("stop_all", "{}")

CALLING = [spec for spec in FORMATS if spec.calls is not None]
MARKED = [spec for spec in CALLING if spec.calls is not None and not spec.calls.bare]
every = pytest.mark.parametrize("spec", FORMATS, ids=lambda spec: spec.name)
calling = pytest.mark.parametrize("spec", CALLING, ids=lambda spec: spec.name)
marked = pytest.mark.parametrize("spec", MARKED, ids=lambda spec: spec.name)


def read(spec: FormatSpec, raw: str, *, tail: Any = "text", finish: Any = "stop") -> list[Any]:
    """What `raw` reads as, at once and character by character alike; arguments as values."""
    context = ParserContext(tail=tail, tools=TOOLS)
    results = []
    for parts in ([raw], list(raw)):
        deltas = feed(MarkupFormat(spec).parser(context), parts, finish)
        check_grammar(deltas, raw)
        results.append(blocks(deltas))
    assert results[0] == results[1]
    return [plain(block) for block in results[0]]


def plain(block: Block) -> Any:
    if block.kind != "call":
        return block.kind, block.text
    return ("call", block.name, json.loads(block.text)) if block.whole else ("cut", block.name)


def written(spec: FormatSpec, *pieces: Any, tail: Any = "text") -> str:
    return MarkupFormat(spec).write(pieces, tail=tail)


CALLS = [("call", "get_weather", json.loads(WEATHER.arguments)), ("call", "stop_all", {})]


@calling
def test_text_may_stand_before_between_and_behind_calls(spec: FormatSpec) -> None:
    raw = written(
        spec, TextPiece("Let me see."), WEATHER, TextPiece("And"), NOTHING, TextPiece("Done.")
    )
    said = [("text", "Let me see."), CALLS[0], ("text", "And"), CALLS[1], ("text", "Done.")]
    assert read(spec, raw) == said


@calling
def test_the_same_call_may_come_twice(spec: FormatSpec) -> None:
    assert read(spec, written(spec, WEATHER, WEATHER, NOTHING)) == [CALLS[0], CALLS[0], CALLS[1]]


@calling
def test_whitespace_around_calls_says_nothing(spec: FormatSpec) -> None:
    for space in ("\n", "  \n\n", "\t"):
        assert read(spec, space + written(spec, WEATHER, NOTHING) + space) == CALLS


@calling
def test_an_end_marker_may_be_missing(spec: FormatSpec) -> None:
    """A stop string or a limit takes it, whole or in part, and the call was complete before it."""
    syntax = spec.calls
    assert syntax is not None
    raw = written(spec, WEATHER)
    ends = [end for end in syntax.ends if raw.endswith(end)]
    for end in ends[:1]:
        for length in range(len(end) + 1):
            said = read(spec, raw[: len(raw) - len(end) + length])
            assert said[0] == CALLS[0]
            assert len(said) == 1


@calling
def test_what_follows_a_missing_end_marker_is_read(spec: FormatSpec) -> None:
    syntax = spec.calls
    assert syntax is not None
    raw = written(spec, WEATHER)
    end = next((end for end in syntax.ends if raw.endswith(end)), "")
    if not end or end == getattr(syntax, "value_close", None):
        pytest.skip("nothing but the JSON ends the calls")
    again = raw.removesuffix(end) + "\n" + raw
    assert read(spec, again) == [CALLS[0], CALLS[0]]


@every
def test_text_may_end_in_a_part_of_any_marker(spec: FormatSpec) -> None:
    starts = set(spec.calls.starts) if spec.calls is not None else set()
    opens = set(spec.reasoning.opens) if spec.reasoning is not None else set()
    special = ActiveMarkers(spec).special
    for marker in starts | opens:
        for length in range(1, len(marker)):
            ending = marker[:length]
            if ending in starts | opens:
                continue
            whole = f"So {ending}".rstrip()
            said = "".join(text for _, text in read(spec, f"So {ending}")).rstrip()
            token = special or any(mark in ending for mark in ("|", "｜", "]<]"))
            if token and length >= 6:  # what begins a special token may be hidden, and nothing else
                assert said.startswith("So")
                assert whole.startswith(said)
            else:
                assert said == whole


@marked
def test_a_tool_that_was_not_offered_may_still_be_called(spec: FormatSpec) -> None:
    raw = written(spec, CallPiece("elsewhere", '{"a": "b"}'))
    assert read(spec, raw) == [("call", "elsewhere", {"a": "b"})]


@marked
def test_a_call_of_an_offered_tool_ends_unclosed_reasoning(spec: FormatSpec) -> None:
    if spec.reasoning is None or getattr(spec.calls, "prefaces", ()):
        pytest.skip("the format has no reasoning, or ends it by the header of another message")
    raw = "I need it.\n" + written(spec, WEATHER)
    assert read(spec, raw, tail="reasoning") == [("reasoning", "I need it."), CALLS[0]]


@calling
def test_calls_that_are_cut_off_have_no_end(spec: FormatSpec) -> None:
    raw = written(spec, CallPiece("get_weather", json.dumps({"city": "word " * 20})))
    half = raw[: raw.index("word word word word") + 15]
    assert read(spec, half, finish="length") == [("cut", "get_weather")]


@every
def test_a_prompt_may_open_or_close_the_reasoning(spec: FormatSpec) -> None:
    if spec.reasoning is None:
        pytest.skip("the format has no reasoning")
    pieces = (ReasoningPiece("hm"), TextPiece("Hi."))
    for tail in ("text", "reasoning", "unknown"):
        raw = written(spec, *pieces, tail=tail)
        assert read(spec, raw, tail=tail) == [("reasoning", "hm"), ("text", "Hi.")]
    assert read(spec, written(spec, TextPiece("Hi."), tail="text")) == [("text", "Hi.")]


def soup(spec: FormatSpec) -> list[str]:
    """Pieces of the format's own markup, whole and broken, and what models write into it."""
    pieces = [TextPiece("so")]
    if spec.reasoning is not None:
        pieces.insert(0, ReasoningPiece("why"))  # type: ignore[arg-type]
    calls = [WEATHER, NOTHING] if spec.calls is not None else []
    raw = written(spec, *pieces, *calls)
    marks = set(spec.frame.opens + spec.frame.closes) if spec.frame is not None else set()
    if spec.reasoning is not None:
        marks |= {*spec.reasoning.opens, *spec.reasoning.closes}
    if spec.calls is not None:
        marks |= {*spec.calls.starts, *spec.calls.ends, *spec.calls.markup}
    parts = {part for part in re.split(r"(<[^<>]*>|\s|[{}\[\],:()=])", raw) if part}
    parts |= marks | {mark[: len(mark) // 2] for mark in marks} | {mark[:-1] for mark in marks}
    parts |= {raw, raw[: len(raw) // 2], raw[len(raw) // 2 :], "x" * 300, "é😀", "\ud800", "\x00"}
    parts |= set("\"'\\{}[]()<>=:,`\n ") | {
        "null",
        "007",
        "True",
        "stop_all",
        "elsewhere",
        '{"name": "',
    }
    return sorted(parts - {""})


@every
def test_nothing_depends_on_the_cutting_and_nothing_raises(spec: FormatSpec) -> None:
    chance = random.Random(zlib.crc32(spec.name.encode()))
    parts = soup(spec)
    for _ in range(40):
        raw = "".join(chance.choices(parts, k=chance.randint(1, 14)))
        context = ParserContext(
            tail=chance.choice(("text", "reasoning", "unknown")), tools=chance.choice((TOOLS, {}))
        )
        finish: Any = chance.choice(("stop", "length"))
        places = [chance.randint(0, len(raw)) for _ in range(chance.randint(1, 20))]
        results = []
        for cutting in ([raw], list(raw), cut(raw, places)):
            parser = MarkupFormat(spec).parser(context)
            deltas = feed(parser, cutting, finish)
            check_grammar(deltas, raw)
            results.append((blocks(deltas), parser.recoveries))
        assert results[0] == results[1] == results[2], raw


@every
def test_little_is_held(spec: FormatSpec) -> None:
    """Never more than the longest marker, or whitespace behind a quotation mark."""
    pieces: list[Any] = [TextPiece("some <text> with [brackets] {and} more " * 5)]
    if spec.reasoning is not None:
        pieces.insert(0, ReasoningPiece("a <thought> " * 20))
    if spec.calls is not None:
        pieces += [CallPiece("get_weather", json.dumps({"city": "a <b> [c] {d} " * 20})), WEATHER]
    parser = Machine(spec, ActiveMarkers(spec), ParserContext(tail="text", tools=TOOLS))
    for letter in written(spec, *pieces):
        parser.feed(EngineOutput(text=letter))
        assert len(parser._held) < 80
