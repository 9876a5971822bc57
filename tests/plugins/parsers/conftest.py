"""Reading outputs with formats, for the tests of the formats: the fixture `reading`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from gateway.plugins.protocols import EngineOutput, ParserContext, Tail, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_parsers.kit.machine import Machine

Items = list[tuple[str, str]]


class Reading:
    @staticmethod
    def format_of(name: str = "qwen3") -> MarkupFormat:
        return MarkupFormat(BY_NAME[name])

    @staticmethod
    def parser_of(
        name: str = "qwen3",
        *,
        tail: Tail = "unknown",
        tools: Sequence[str] = (),
        parse_tools: bool = True,
    ) -> Machine:
        context = ParserContext(
            tail=tail,
            tools={tool: ToolDefinition(name=tool) for tool in tools},
            parse_tools=parse_tools,
        )
        parser = Reading.format_of(name).parser(context)
        assert isinstance(parser, Machine)
        return parser

    @staticmethod
    def fed(parser: Machine, text: str) -> Sequence[Delta]:
        return parser.feed(EngineOutput(text=text))

    @staticmethod
    def deltas_of(parser: Machine, pieces: Sequence[str]) -> list[Delta]:
        deltas: list[Delta] = []
        for piece in pieces:
            deltas += parser.feed(EngineOutput(text=piece))
        deltas += parser.finish("stop")
        return deltas

    @staticmethod
    def fold(deltas: Sequence[Delta]) -> Items:
        """The items that deltas add up to; asserts that they keep the grammar of `gateway.base.deltas`."""
        items: Items = []
        apart = True
        in_call = False
        for delta in deltas:
            match delta:
                case ReasoningDelta(text) | TextDelta(text):
                    assert text
                    assert not in_call or items[-1][0] == "cut call"
                    kind = "reasoning" if isinstance(delta, ReasoningDelta) else "text"
                    if not apart and items[-1][0] == kind:
                        items[-1] = (kind, items[-1][1] + text)
                    else:
                        items.append((kind, text))
                    apart = False
                case BlockEnded():
                    assert not in_call
                    apart = True
                case CallStarted(name):
                    assert not in_call
                    in_call = True
                    items += [("call", name), ("cut arguments", "")]
                case CallArgumentsDelta(text):
                    assert in_call
                    assert text
                    items[-1] = ("cut arguments", items[-1][1] + text)
                case CallEnded():
                    assert in_call
                    in_call = False
                    items[-1] = ("arguments", items[-1][1])
                    apart = True
                case _:
                    raise AssertionError(delta)
        return items

    @staticmethod
    def read(
        raw: str,
        name: str = "qwen3",
        *,
        tail: Tail = "unknown",
        tools: Sequence[str] = (),
        parse_tools: bool = True,
    ) -> Items:
        """What `raw` reads as, in one piece and character by character alike."""
        whole = Reading.parser_of(name, tail=tail, tools=tools, parse_tools=parse_tools)
        single = Reading.parser_of(name, tail=tail, tools=tools, parse_tools=parse_tools)
        items = Reading.fold(Reading.deltas_of(whole, [raw]))
        assert Reading.fold(Reading.deltas_of(single, list(raw))) == items
        assert whole.recoveries == single.recoveries
        return items

    @staticmethod
    def call(name: str, arguments: str) -> Items:
        return [("call", name), ("arguments", arguments)]


@pytest.fixture(scope="session")
def reading() -> type[Reading]:
    """Ways to read an output, and to compare what was read."""
    return Reading
