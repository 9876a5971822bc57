"""What every output format and its parser promise, as tests to inherit."""

from __future__ import annotations

import json
import re
import time
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.protocols import (
    CallPiece,
    EngineOutput,
    OutputFormat,
    ParserContext,
    Piece,
    ReasoningPiece,
    Tail,
    TextPiece,
    ToolDefinition,
)
from gateway.testing.reading import Block, blocks, check_grammar, cut, feed, read

_TOOLS = (
    ToolDefinition(
        name="get_weather",
        description="The weather somewhere",
        parameters={
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "more": {"type": "object"},
            },
        },
    ),
    ToolDefinition(name="stop_all", description="Without arguments"),
)


class OutputParserContract:
    """Subclass it, and give a fixture `output_format`: an `OutputFormat`.

    The attributes say what the family's syntax can express; leave them as they are wherever it can.
    """

    tails: ClassVar[tuple[Tail, ...]] = ("text", "reasoning", "unknown")
    """Where its output may start."""
    reasons: ClassVar[bool] = True
    """Whether it can write reasoning."""
    calls: ClassVar[bool] = True
    """Whether it can write calls."""
    parallel_calls: ClassVar[bool] = True
    """Whether one output may have several calls."""
    text_with_calls: ClassVar[bool] = True
    """Whether one output may have text before its calls."""
    tools: ClassVar[tuple[ToolDefinition, ...]] = _TOOLS
    text: ClassVar[st.SearchStrategy[str]] = st.text(
        st.sampled_from("abcdefgh ABC \n 0123 .,:;!? <>/|[]{}\"'`\\=_-*# éß日本🙂"),
        min_size=1,
        max_size=60,
    )
    """Texts to be written: not empty, and free of the family's own markers. Outer white space is taken off."""
    max_examples: ClassVar[int] = 60
    """How many outputs each property is tried on; where one is costly, fewer of them. Lower it for a slow format."""

    def context(self, tail: Tail = "text", **changes: Any) -> ParserContext:
        """A request that offers `tools`."""
        known: dict[str, Any] = {"tail": tail, "tools": {tool.name: tool for tool in self.tools}}
        return ParserContext(**{**known, **changes})

    def _settings(self, *, one_in: int = 1) -> settings:
        examples = max(1, self.max_examples // one_in)
        return settings(
            max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)
        )

    def arguments(self) -> st.SearchStrategy[dict[str, Any]]:
        """Arguments that fit the first tool."""
        return st.fixed_dictionaries(
            {},
            optional={
                "city": self.text,
                "days": st.integers(-(2**53), 2**53),
                "metric": st.booleans(),
                "tags": st.lists(self.text, max_size=3),
                "more": st.dictionaries(
                    st.text("abc", min_size=1, max_size=3),
                    st.none() | st.integers(0, 9) | self.text,
                    max_size=2,
                ),
            },
        )

    def a_call(self) -> st.SearchStrategy[CallPiece]:
        """Calls of the tools."""
        first, second = self.tools[0].name, self.tools[1].name
        return st.one_of(
            self.arguments().map(
                lambda arguments: CallPiece(first, json.dumps(arguments, ensure_ascii=False))
            ),
            st.just(CallPiece(second, "{}")),
        )

    def answers(self) -> st.SearchStrategy[list[Piece]]:
        """Whole outputs: reasoning, text, calls, each of which may be missing, but not all."""
        text = self.text.map(str.strip).filter(bool)
        reasoning: st.SearchStrategy[list[Piece]] = st.just([])
        if self.reasons:
            reasoning = st.lists(text.map(ReasoningPiece), max_size=1)
        said: st.SearchStrategy[list[Piece]] = st.lists(text.map(TextPiece), max_size=1)
        called: st.SearchStrategy[list[Piece]] = st.just([])
        if self.calls:
            called = st.lists(self.a_call(), max_size=3 if self.parallel_calls else 1)
        if not self.text_with_calls:
            answer = said | called
        else:
            answer = st.tuples(said, called).map(lambda two: [*two[0], *two[1]])
        return st.tuples(reasoning, answer).map(lambda two: [*two[0], *two[1]]).filter(bool)

    def soup(self, output_format: OutputFormat) -> st.SearchStrategy[str]:
        """Pieces of the family's own markup and of text, in any order: what a confused model writes."""
        pieces: list[Piece] = []
        if self.reasons:
            pieces.append(ReasoningPiece("why"))
        if self.text_with_calls or not self.calls:
            pieces.append(TextPiece("so"))
        if self.calls:
            pieces.append(CallPiece(self.tools[0].name, '{"city": "Oslo", "days": 3}'))
        written = output_format.write(pieces, tail="text")
        fragments = {each for each in re.split(r"(<[^<>]*>|\s|[{}\[\],:])", written) if each}
        fragments |= {written, written[: len(written) // 2], '"', "\\", "\\u12", "{}", "<", ">"}
        part = st.sampled_from(sorted(fragments)) | self.text
        return st.lists(part, max_size=12).map("".join)

    def test_what_is_written_is_read_again(self, output_format: OutputFormat) -> None:
        """And nothing in it had to be guessed."""

        @self._settings()
        @given(self.answers(), st.sampled_from(self.tails))
        def there_and_back(pieces: list[Piece], tail: Tail) -> None:
            parser = output_format.parser(self.context(tail))
            written = output_format.write(pieces, tail=tail)
            deltas = feed(parser, [written])
            check_grammar(deltas, written)
            assert _plain(blocks(deltas)) == _plain_pieces(pieces)
            assert parser.recoveries == 0

        there_and_back()

    def test_how_the_output_is_cut_does_not_matter(self, output_format: OutputFormat) -> None:
        places = st.lists(st.integers(0, 4000), max_size=30)

        @self._settings()
        @given(self.answers(), places, st.sampled_from(self.tails))
        def well_formed(pieces: list[Piece], at: list[int], tail: Tail) -> None:
            self._same_however_cut(output_format, output_format.write(pieces, tail=tail), at, tail)

        @self._settings()
        @given(self.soup(output_format), places, st.sampled_from(self.tails))
        def malformed(written: str, at: list[int], tail: Tail) -> None:
            self._same_however_cut(output_format, written, at, tail)

        well_formed()
        malformed()

    def _same_however_cut(
        self, output_format: OutputFormat, written: str, at: list[int], tail: Tail
    ) -> None:
        context = self.context(tail)
        at_once = read(output_format, [written], context)
        assert read(output_format, cut(written, at), context) == at_once
        assert read(output_format, list(written), context) == at_once

    def test_nothing_that_a_model_writes_raises(self, output_format: OutputFormat) -> None:
        """However the output ends."""
        anything = self.soup(output_format) | st.text(max_size=80)

        @self._settings()
        @given(anything, st.sampled_from(self.tails), st.sampled_from(["stop", "length", "error"]))
        def survives(written: str, tail: Tail, finish: Any) -> None:
            read(output_format, [written], self.context(tail), finish)

        survives()

    def test_an_output_may_end_anywhere(self, output_format: OutputFormat) -> None:
        """What came before the cut is read as ever; only the end of it, half a marker perhaps, may be read otherwise."""

        @self._settings(one_in=4)
        @given(self.answers())
        def cut_off(pieces: list[Piece]) -> None:
            written = output_format.write(pieces, tail="text")
            whole = read(output_format, [written], self.context())
            calls = [block for block in whole if block.kind == "call"]
            for end in range(len(written)):
                part = written[:end]
                found = read(output_format, [part], self.context(), "length")
                called = [block for block in found if block.kind == "call"]
                assert [block.name for block in called] == [c.name for c in calls[: len(called)]]
                complete = [block for block in called if block.whole]
                assert complete == calls[: len(complete)]
                for kind in ("reasoning", "text"):
                    said, all_said = (_said(each, kind) for each in (found, whole))
                    rest = said[_common(said, all_said) :]
                    assert part.rstrip().endswith(rest.rstrip())

        cut_off()

    def test_text_before_any_markup_comes_at_once(self, output_format: OutputFormat) -> None:
        """A stream must not wait for its end."""
        for tail in self.tails:
            parser = output_format.parser(self.context(tail))
            start = output_format.write([TextPiece("Hello there, this")], tail=tail)
            at = start.index("there")
            deltas = [*parser.feed(EngineOutput(text=start[:at]))]
            deltas += parser.feed(EngineOutput(text=start[at : at + 5]))
            deltas += parser.feed(EngineOutput(text=" is more of it"))
            assert blocks(deltas)[-1].text.startswith("Hello there")

    def test_parsers_do_not_share_anything(self, output_format: OutputFormat) -> None:
        """Two generations that take turns, as the choices of one request do."""

        @self._settings(one_in=2)
        @given(self.answers(), self.answers())
        def interleaved(one: list[Piece], other: list[Piece]) -> None:
            texts = [output_format.write(pieces, tail="text") for pieces in (one, other)]
            alone = [read(output_format, [text], self.context()) for text in texts]
            parsers = [output_format.parser(self.context()) for _ in texts]
            deltas: list[list[Any]] = [[], []]
            for place in range(max(map(len, texts))):
                for number, text in enumerate(texts):
                    output = EngineOutput(text=text[place : place + 1])
                    deltas[number] += parsers[number].feed(output)
            for number, parser in enumerate(parsers):
                deltas[number] += parser.finish("stop")
            assert [blocks(each) for each in deltas] == alone

        interleaved()

    def test_a_call_without_arguments_has_an_empty_object(
        self, output_format: OutputFormat
    ) -> None:
        if not self.calls:
            pytest.skip("the format has no calls")
        name = self.tools[1].name
        written = output_format.write([CallPiece(name, "{}")], tail="text")
        (call,) = read(output_format, [written], self.context())
        assert (call.kind, call.name, call.whole) == ("call", name, True)
        assert json.loads(call.text) == {}

    def test_without_tools_a_call_is_text(self, output_format: OutputFormat) -> None:
        if not self.calls:
            pytest.skip("the format has no calls")
        piece = CallPiece(self.tools[0].name, '{"city": "Oslo"}')
        written = output_format.write([piece], tail="text")
        context = self.context(tools={}, parse_tools=False)
        found = read(output_format, [written], context)
        assert {block.kind for block in found} == {"text"}
        assert "Oslo" in "".join(block.text for block in found)

    def test_reasoning_is_counted_in_tokens(self, output_format: OutputFormat) -> None:
        if not self.reasons:
            pytest.skip("the format has no reasoning")
        pieces: list[Piece] = [ReasoningPiece("one two three"), TextPiece("four")]
        written = output_format.write(pieces, tail="text")
        parser = output_format.parser(self.context())
        for number, letter in enumerate(written):
            parser.feed(EngineOutput(text=letter, token_ids=(number,)))
        parser.finish("stop")
        # A marker's own tokens may count as reasoning or not.
        assert len("one two three") <= parser.reasoning_tokens <= len(written) - len("four")

    def test_the_cost_is_linear(self, output_format: OutputFormat) -> None:
        """A hundred thousand characters, one at a time, in less than 24 times what an eighth of them takes; a quadratic
        parser needs 64 times as much."""
        kinds: list[Piece] = [TextPiece("word < and { more \n")]
        if self.reasons:
            kinds.append(ReasoningPiece("word < and { more \n"))
        if self.calls:
            kinds.append(CallPiece(self.tools[0].name, "word < and { more \n"))
        for kind in kinds:
            short, long = (self._cost(output_format, kind, rounds) for rounds in (660, 5280))
            assert long < 24 * short, f"{type(kind).__name__}: {short:.4f} s, then {long:.4f} s"

    def _cost(self, output_format: OutputFormat, piece: Piece, rounds: int) -> float:
        """Seconds of CPU for one output, the better of two."""
        match piece:
            case CallPiece(name, filler):
                arguments = json.dumps({"city": (filler * rounds).strip()})
                written = output_format.write([CallPiece(name, arguments)], tail="text")
            case _:
                long: Piece = type(piece)((piece.text * rounds).strip())
                written = output_format.write([long], tail="text")
        best = float("inf")
        for _ in range(2):
            parser = output_format.parser(self.context())
            start = time.process_time()
            for letter in written:
                parser.feed(EngineOutput(text=letter))
            parser.finish("stop")
            best = min(best, time.process_time() - start)
        return best


def _said(found: list[Block], kind: str) -> str:
    """All that the blocks of one kind say."""
    return "".join(block.text for block in found if block.kind == kind)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _plain(found: list[Block]) -> list[Any]:
    """Blocks in a form in which white space at the edges, and in JSON, is no difference."""
    return [
        (block.kind, block.name, json.loads(block.text), block.whole)
        if block.kind == "call"
        else (block.kind, block.text.strip())
        for block in found
        if block.kind == "call" or block.text.strip()
    ]


def _plain_pieces(pieces: list[Piece]) -> list[Any]:
    plain: list[Any] = []
    for piece in pieces:
        match piece:
            case CallPiece(name, arguments):
                plain.append(("call", name, json.loads(arguments), True))
            case ReasoningPiece(text):
                plain.append(("reasoning", text.strip()))
            case _:
                plain.append(("text", piece.text.strip()))
    return plain
