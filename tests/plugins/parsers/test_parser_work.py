"""The work of reading grows with the output, and no faster. Counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from gateway.deltas import TextDelta
from gateway.protocols import EngineOutput, ParserContext
from gateway_parsers import BY_NAME, MarkupFormat

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
