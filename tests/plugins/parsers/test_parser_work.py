"""The work of reading grows with the output, and no faster. Counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, SupportsIndex

import pytest

from gateway.base.deltas import TextDelta
from gateway.plugins.protocols import (
    CallPiece,
    EngineOutput,
    OutputFormat,
    ParserContext,
    Tail,
    ToolDefinition,
)
from gateway.sdk.constraints import custom_schema
from gateway_harmony import HarmonyFormat
from gateway_parsers import BY_NAME, FORMATS, MarkupFormat
from gateway_testing.reading import blocks, feed

HEAD = '<tool_call>\n{"name": "f", "arguments": {"a": '

OUTPUTS = {
    "text": ["Hi", " word", "\n", " <b", ">"],
    "thinking": ["<think>", "x", " word", "\n", " <tool"],
    "one string": [HEAD + '"', "word ", "\\", "n", "<", "é"],
    "numbers": [HEAD + "[1", ",", " 12", "\n"],
    "nesting": [HEAD + "[", '{"a"', ": ["],
    "arguments before the name": ['<tool_call>{"arguments": {"a": "', "word "],
    "markers that are none": ["<tool_call>", "x<tool_call>{", "</think>"],
    "whitespace": ["\n", " "],
    "encoded arguments": ['<tool_call>{"name": "f", "arguments": "{', '\\"a', "\\", "u00e9"],
}


class Counter:
    """Counts calls of functions, and the characters that the parser is given to read, held ones again."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")


def work(reading: Any, pieces: Sequence[str], tail: Any) -> tuple[int, int]:
    parser = reading.parser_of(tail=tail)
    outputs = [EngineOutput(text=piece) for piece in pieces]
    counter = Counter()
    longest = 0
    sys.setprofile(counter)
    try:
        for output in outputs:
            parser.feed(output)
            longest = max(longest, len(parser._held))
        parser.finish("stop")
    finally:
        sys.setprofile(None)
    return counter.calls, longest


@pytest.mark.parametrize("case", OUTPUTS)
@pytest.mark.parametrize("tail", ["text", "reasoning"])
def test_the_cost_of_a_token_does_not_grow(reading: Any, case: str, tail: str) -> None:
    head, *cycle = OUTPUTS[case]
    cycle = cycle or [head]
    short, _ = work(reading, [head, *cycle * 50], tail)
    long, held = work(reading, [head, *cycle * 400], tail)
    assert long <= 8.5 * short
    assert held <= len(
        "</tool_call>"
    )  # so that no character is read more often than a marker is long


def test_a_run_of_backslashes_is_not_held() -> None:
    parser = MarkupFormat(BY_NAME["minicpmv"]).parser(ParserContext(tail="text"))
    shown = 0
    for fed in range(1, 500):
        deltas = parser.feed(EngineOutput(text="\\"))
        shown += sum(len(delta.text) for delta in deltas if isinstance(delta, TextDelta))
        assert fed - shown <= 1
    ended = [*parser.feed(EngineOutput(text="n")), *parser.finish("stop")]
    assert "".join(each.text for each in ended if isinstance(each, TextDelta))[-1] == "n"


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("pythonic", "[f(a"),
        (
            "deepseek_v3",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json",
        ),
    ],
)
def test_white_space_within_a_call_is_not_held(name: str, begin: str) -> None:
    parser = MarkupFormat(BY_NAME[name]).parser(ParserContext(tail="text"))
    for part in (begin, *" " * 500):
        parser.feed(EngineOutput(text=part))
        assert len(parser._held) <= 40


def test_members_that_wait_for_others_are_not_looked_at_for_each() -> None:
    branches = [
        {"properties": {"k": {"const": kind}, "v": {"type": of}, "w": {"type": "string"}}}
        for kind, of in (("x", "integer"), ("y", "string"))
    ]
    tools = {"u": ToolDefinition(name="u", parameters={"anyOf": branches})}
    pair = "<parameter=v>\n3\n</parameter>\n<parameter=w>\na\n</parameter>\n"

    def calls(times: int) -> int:
        parser = MarkupFormat(BY_NAME["qwen3_coder"]).parser(ParserContext(tools=tools))
        counter = Counter()
        sys.setprofile(counter)
        try:
            for part in ("<tool_call>\n<function=u>\n", *[pair] * times):
                parser.feed(EngineOutput(text=part))
        finally:
            sys.setprofile(None)
        return counter.calls

    assert calls(120) <= 8 * calls(20)


class CountedText(str):
    """Counts the characters that are taken out of it, also by loops and slices that the profiler does not see."""

    __slots__ = ()
    taken = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        CountedText.taken += len(found)
        return found


OFFERED = {
    "f": ToolDefinition(name="f", parameters={"properties": {"a": {"type": "integer"}}}),
    "patch": ToolDefinition(name="patch", parameters=custom_schema(), kind="custom"),
}


def work_on(output_format: OutputFormat, parts: Sequence[str], tail: Tail) -> int:
    parser = output_format.parser(ParserContext(tail=tail, tools=OFFERED))
    outputs = [EngineOutput(text=CountedText(part)) for part in parts]
    counter = Counter()
    CountedText.taken = 0
    sys.setprofile(counter)
    try:
        for output in outputs:
            parser.feed(output)
        parser.finish("length")
    finally:
        sys.setprofile(None)
    return counter.calls + CountedText.taken


def check_work(output_format: OutputFormat, begin: str, repeated: str, tail: Tail) -> None:
    """Six times the output takes about six times the work, in one piece. Work that grows with the square is a million."""
    outputs = [begin + repeated * (size // len(repeated)) for size in (1000, 6000)]
    short, long = (work_on(output_format, [output], tail) for output in outputs)
    assert long <= 8 * short + 60_000, (begin, repeated, tail, short, long)


HOSTILE: list[tuple[str, str, str, Tail]] = [
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜too", "<think>", "text"),
    ("ernie45", "", '\\"<think>', "reasoning"),
    ("gemma4", "<|tool_call>call:free{x", "<call><tool_call|>", "text"),
    ("olmo3", '<function_calls>free(x={"q": "a', "🙂<|i</x>", "text"),
    ("harmony", "", "<|channel|>", "unknown"),
    ("qwen3_coder", "", "<tool_call>\n<function=f", "text"),
    ("qwen3", HEAD, "/* ", "text"),
    ("qwen3", HEAD + "/*", "*</tool_cal", "text"),
    ("qwen3", HEAD + "“", "” ", "text"),
    ("qwen3", HEAD + '"""', '""x', "text"),
    ("qwen3", "<tool_call>", "a b=1 ", "text"),
    ("glm45", "<tool_call>f ", "a=1 ", "text"),
    ("gemma4", "<|tool_call>call:patch{*", '} <|"', "text"),
    ("kimi_k3", "", "<|close|>think", "reasoning"),
    (
        "cohere_command5",
        '<cofl:tool_calls><cofl:tool_call name="f"><cofl:value name="',
        "a>",
        "text",
    ),
]


@pytest.mark.parametrize(("name", "begin", "repeated", "tail"), HOSTILE)
def test_a_hostile_output_in_one_piece_is_read_once(
    name: str, begin: str, repeated: str, tail: Tail
) -> None:
    spec = BY_NAME.get(name)
    check_work(MarkupFormat(spec) if spec else HarmonyFormat(), begin, repeated, tail)


def hostile(output_format: OutputFormat, name: str) -> Iterator[tuple[str, str]]:
    """Beginnings of outputs, and what is repeated after them."""
    spec = BY_NAME.get(name)
    calls = [CallPiece("f", '{"a": "x", "o": {"k": [1]}}')]
    written = output_format.write(calls, tail="text") if spec is None or spec.calls else "<think>"
    markers = ["<|channel|>", "<|end|>"] if spec is None else []
    if spec is not None and spec.reasoning is not None:
        markers += (spec.reasoning.open, spec.reasoning.close)
    if spec is not None and spec.calls is not None:
        markers += (*spec.calls.starts, *spec.calls.ends)
    whole = len(written)
    for begin in ("", written[: whole // 3], written[: whole // 2], written[: -whole // 4]):
        for repeated in (
            *markers,
            written[: whole // 2],
            "x" + written[:-3],
            '"<x>',
            "{[",
            ", ",
            "\n",
        ):
            yield begin, repeated


def test_empty_parts_of_a_header_are_bounded() -> None:
    parser = MarkupFormat(BY_NAME["deepseek_v3"]).parser(ParserContext(tail="text"))
    begin = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f"
    feed = ["<｜tool▁sep｜>"] * 1000
    deltas = [
        delta for part in (begin, *feed, "x") for delta in parser.feed(EngineOutput(text=part))
    ]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(spec.name for spec in FORMATS), "harmony"])
def test_no_format_reads_a_hostile_output_several_times(name: str) -> None:
    spec = BY_NAME.get(name)
    output_format: OutputFormat = MarkupFormat(spec) if spec else HarmonyFormat()
    for begin, repeated in hostile(output_format, name):
        check_work(output_format, begin, repeated, "text")


def test_white_space_and_fences_before_arguments_are_bounded() -> None:
    header = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"
    tools = {
        "f": ToolDefinition(name="f"),
        "c": ToolDefinition(name="c", parameters=custom_schema(), kind="custom"),
    }
    for name in tools:
        for flood in (" ", "```\n", '"', "{"):
            for parts in ([flood * 20_000], [flood] * 20_000):
                parser = HarmonyFormat().parser(ParserContext(tools=tools))
                found = blocks(feed(parser, [header.format(name), *parts, "<|call|>"]))
                assert found[0].name == name
