"""Parsing a raw output, and converting the result to a form that tests can compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    CitationEnded,
    CitationStarted,
    Delta,
    MessageStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)
from gateway.plugins.protocols import (
    EngineOutput,
    FinishReason,
    OutputFormat,
    OutputParser,
    ParserContext,
)


class Block(Struct, frozen=True):
    """A section of one kind. `name` is the name of a called tool; `whole` tells whether a call was complete."""

    kind: str
    text: str
    name: str = ""
    whole: bool = True


def feed(parser: OutputParser, parts: Iterable[str], finish: FinishReason = "stop") -> list[Delta]:
    """Feed an output to a parser in these parts. Returns all deltas."""
    deltas: list[Delta] = []
    for part in parts:
        deltas.extend(parser.feed(EngineOutput(text=part)))
    deltas.extend(parser.finish(finish))
    return deltas


def read(
    output_format: OutputFormat,
    parts: Iterable[str],
    context: ParserContext,
    finish: FinishReason = "stop",
) -> list[Block]:
    """Parse an output with a new parser, and check the grammar of the deltas. Returns the blocks."""
    parts = list(parts)
    deltas = feed(output_format.parser(context), parts, finish)
    check_grammar(deltas, "".join(parts))
    return blocks(deltas)


def cut(text: str, places: Sequence[int]) -> list[str]:
    """`text` split at these positions, taken modulo its length."""
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(edges)]


def blocks(deltas: Iterable[Delta]) -> list[Block]:
    """Merge deltas: adjacent deltas of one kind form one block, unless a `BlockEnded` or a new message separates
    them."""
    found: list[Block] = []
    parts: list[str] = []
    kind, name = "", ""

    def close(*, whole: bool = True) -> None:
        nonlocal kind
        if kind:
            found.append(Block(kind, "".join(parts), name, whole))
        parts.clear()
        kind = ""

    def add(which: str, text: str) -> None:
        nonlocal kind, name
        if kind != which:
            close()
            kind, name = which, ""
        parts.append(text)

    for delta in deltas:
        match delta:
            case TextDelta(text):
                add("text", text)
            case ReasoningDelta(text):
                add("reasoning", text)
            case RefusalDelta(text):
                add("refusal", text)
            case BlockEnded() | MessageStarted():
                close()
            case CallStarted(called):
                close()
                kind, name = "call", called
            case CallArgumentsDelta(text):
                parts.append(text)
            case CallEnded():
                close()
    close(whole=kind != "call")
    return found


def check_grammar(deltas: Sequence[Delta], output: str) -> None:
    """Raise AssertionError if `deltas` violate the grammar of `gateway.base.deltas`, or if a delta has a wrong position in
    the output."""
    in_call = False
    cited: bool | None = None
    for delta in deltas:
        match delta:
            case CitationStarted():
                cited = False
            case TextDelta():
                cited = cited if cited is None else True
            case CitationEnded(sources):
                assert cited, "the end of a citation without text"
                assert sources, "a citation without sources"
                cited = None
            case _:
                assert cited is not False, "a citation without text"
                cited = None
        match delta:
            case CallStarted(name):
                assert not in_call, "a call begins inside a call"
                assert name, "a call without a name"
                in_call = True
            case CallArgumentsDelta(text):
                assert in_call, "arguments outside of a call"
                assert text, "an empty delta"
            case CallEnded():
                assert in_call, "the end of a call that never began"
                in_call = False
            case _:
                assert not in_call, f"{type(delta).__name__} inside a call"
        match delta:
            case TextDelta(text, start):
                assert text, "an empty delta"
                if start >= 0:
                    there = output[start : start + len(text)]
                    assert there == text, f"at {start} the output has {there!r}, not {text!r}"
            case ReasoningDelta(text) | RefusalDelta(text):
                assert text, "an empty delta"
