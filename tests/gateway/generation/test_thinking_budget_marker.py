"""Every format's end of reasoning is read as one by its own parser."""

from __future__ import annotations

import pytest

from gateway.base.deltas import ReasoningDelta, TextDelta
from gateway.generation.thinking_budget import end_of_reasoning
from gateway.plugins.protocols import EngineOutput, ParserContext, ReasoningPiece, Tail, TextPiece
from gateway_parsers import FORMATS, MarkupFormat

CASES = [(spec.name, tail) for spec in FORMATS for tail in ("unknown", "reasoning")]


@pytest.mark.parametrize(("name", "tail"), CASES)
def test_what_follows_the_marker_is_text(name: str, tail: Tail) -> None:
    fmt = MarkupFormat(next(spec for spec in FORMATS if spec.name == name))
    marker = end_of_reasoning(fmt, tail)
    if marker is None:
        pytest.skip("the format has no reasoning here")
    begun = fmt.write([ReasoningPiece("First I thi"), TextPiece("x")], tail=tail)
    begun = begun[: begun.index("First I thi") + len("First I thi")]
    parser = fmt.parser(ParserContext(tail=tail))
    deltas = [
        *parser.feed(EngineOutput(text=begun)),
        *parser.feed(EngineOutput(text=marker)),
        *parser.feed(EngineOutput(text="The answer.")),
        *parser.finish("stop"),
    ]
    reasoning = "".join(each.text for each in deltas if isinstance(each, ReasoningDelta))
    text = "".join(each.text for each in deltas if isinstance(each, TextDelta))
    assert (reasoning, text) == ("First I thi", "The answer.")
