"""The contract of output formats and their parsers, as tests to inherit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import cycle
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import (
    CallPiece,
    EngineOutput,
    FinishReason,
    JoiningFormat,
    OutputFormat,
    ParserContext,
    Piece,
    ReasoningPiece,
    Tail,
    TextPiece,
    ToolDefinition,
)
from gateway_testing.linear_cost import check_cost_is_linear
from gateway_testing.mutations import cuttings, mutated
from gateway_testing.reading import Block, blocks, check_grammar, cut, feed, read

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
    """Subclass this and provide a fixture `output_format`: an `OutputFormat`.

    The attributes describe which outputs the syntax of the family can express. The defaults are for a syntax that can
    express everything.
    """

    tails: ClassVar[tuple[Tail, ...]] = ("text", "reasoning", "unknown")
    """In which sections of an output the parser may have to start."""
    reasons: ClassVar[bool] = True
    """Whether outputs can contain reasoning."""
    calls: ClassVar[bool] = True
    """Whether outputs can contain calls."""
    parallel_calls: ClassVar[bool] = True
    """Whether one output may contain several calls."""
    text_with_calls: ClassVar[bool] = True
    """Whether one output may contain text before its calls."""
    tools: ClassVar[tuple[ToolDefinition, ...]] = _TOOLS
    text: ClassVar[st.SearchStrategy[str]] = st.text(
        st.sampled_from("abcdefgh ABC \n 0123 .,:;!? <>/|[]{}\"'`\\=_-*# éß日本🙂"),
        min_size=1,
        max_size=60,
    )
    """Texts for outputs: not empty, and without the markers of the family. White space around them is stripped."""
    outputs: ClassVar[tuple[str, ...]] = ()
    """Recorded outputs of the family, which the tests mutate in addition to those that the format writes."""
    max_examples: ClassVar[int] = 60
    """Number of examples per property; expensive properties use fewer. Lower it for a slow format."""

    def context(self, tail: Tail = "text", **changes: Any) -> ParserContext:
        """The context of a request that offers `tools`."""
        known: dict[str, Any] = {"tail": tail, "tools": {tool.name: tool for tool in self.tools}}
        return ParserContext(**{**known, **changes})

    def _settings(self, *, one_in: int = 1) -> settings:
        examples = max(1, self.max_examples // one_in)
        return settings(
            max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)
        )

    def arguments(self) -> st.SearchStrategy[dict[str, Any]]:
        """Arguments that are valid for the first tool."""
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
        """Complete outputs: reasoning, text and calls, with at least one of them."""
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
        """The family's markup and text in random order, like the output of a confused model."""
        fragments = {*self._fragments(output_format), '"', "\\", "\\u12", "{}", "<", ">"}
        part = st.sampled_from(sorted(fragments)) | self.text
        return st.lists(part, max_size=12).map("".join)

    def _fragments(self, output_format: OutputFormat) -> list[str]:
        """The pieces of an output that the format writes."""
        pieces: list[Piece] = []
        if self.reasons:
            pieces.append(ReasoningPiece("why"))
        if self.text_with_calls or not self.calls:
            pieces.append(TextPiece("so"))
        if self.calls:
            pieces.append(CallPiece(self.tools[0].name, '{"city": "Oslo", "days": 3}'))
        written = output_format.write(pieces, tail="text")
        fragments = {each for each in re.split(r"(<[^<>]*>|\s|[{}\[\],:])", written) if each}
        return sorted(fragments | {written, written[: len(written) // 2]})

    def test_what_is_written_is_read_again(self, output_format: OutputFormat) -> None:
        """The parser reads the written output without recovering from errors."""

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

    def test_how_a_mutated_output_is_cut_does_not_matter(self, output_format: OutputFormat) -> None:
        """Written outputs and `outputs`, with random changes, are read alike whole and cut at any positions."""

        @self._settings()
        @given(self.answers() | st.sampled_from([*self.outputs, ""]), st.integers(0))
        def mutations(pieces: list[Piece] | str, seed: int) -> None:
            written = (
                pieces if isinstance(pieces, str) else output_format.write(pieces, tail="text")
            )
            random = Random(seed)  # noqa: S311  # not for secrets
            output = mutated(random, written, self._fragments(output_format))
            context = self.context(random.choice(self.tails))
            finish: FinishReason = random.choice(["stop", "length"])
            at_once = read(output_format, [output], context, finish)
            for parts in cuttings(random, output):
                assert read(output_format, parts, context, finish) == at_once

        mutations()

    def _same_however_cut(
        self, output_format: OutputFormat, written: str, at: list[int], tail: Tail
    ) -> None:
        context = self.context(tail)
        at_once = read(output_format, [written], context)
        assert read(output_format, cut(written, at), context) == at_once
        assert read(output_format, list(written), context) == at_once

    def test_nothing_that_a_model_writes_raises(self, output_format: OutputFormat) -> None:
        """This holds for every finish reason."""
        anything = self.soup(output_format) | st.text(max_size=80)

        @self._settings()
        @given(anything, st.sampled_from(self.tails), st.sampled_from(["stop", "length", "error"]))
        def survives(written: str, tail: Tail, finish: Any) -> None:
            read(output_format, [written], self.context(tail), finish)

        survives()

    def test_an_output_may_end_anywhere(self, output_format: OutputFormat) -> None:
        """The output before the cut is parsed as in the whole output. Only its end, such as an incomplete marker, may
        differ."""

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
        """Text before any markup is not held back until the end."""
        for tail in self.tails:
            parser = output_format.parser(self.context(tail))
            start = output_format.write([TextPiece("Hello there, this")], tail=tail)
            at = start.index("there")
            deltas = [*parser.feed(EngineOutput(text=start[:at]))]
            deltas += parser.feed(EngineOutput(text=start[at : at + 5]))
            deltas += parser.feed(EngineOutput(text=" is more of it"))
            assert blocks(deltas)[-1].text.startswith("Hello there")

    def test_the_end_of_a_text_is_not_lost(self, output_format: OutputFormat) -> None:
        """This holds for every single character at the end, which may be the beginning of a marker."""
        for last in "@<[{(|`~#*$%&=-_:;,.!?\"'/\\>]})+^éß日🙂":
            written = output_format.write([TextPiece(f"write to me{last}")], tail="text")
            for parts in ([written], list(written)):
                found = read(output_format, parts, self.context())
                assert _said(found, "text").strip() == f"write to me{last}"

    def test_parsers_do_not_share_anything(self, output_format: OutputFormat) -> None:
        """Two interleaved generations, like the choices of one request, are parsed independently."""

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
        for offered in (
            {},
            {tool.name: tool for tool in self.tools},
        ):  # no tool, or no tool that may be called
            context = self.context(tools=offered, parse_tools=False)
            found = read(output_format, [written], context)
            assert {block.kind for block in found} == {"text"}, f"with {len(offered)} tools"
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
        # The tokens of markers may or may not count as reasoning.
        assert len("one two three") <= parser.reasoning_tokens <= len(written) - len("four")

    def test_how_tokens_are_grouped_does_not_change_their_count(
        self, output_format: OutputFormat
    ) -> None:
        """`reasoning_tokens` is the same whether tokens come one by one or several in one output."""
        if not self.reasons:
            pytest.skip("the format has no reasoning")
        sizes = st.lists(st.integers(1, 12), min_size=1, max_size=8)

        @self._settings(one_in=2)
        @given(self.answers(), sizes, sizes, st.sampled_from(self.tails))
        def grouped(pieces: list[Piece], lengths: list[int], groups: list[int], tail: Tail) -> None:
            tokens = _in_turn(output_format.write(pieces, tail=tail), lengths)
            context = self.context(tail, tokenizer=_Tokens(tokens))
            one_by_one = _reasoning_tokens(
                output_format, context, [[each] for each in range(len(tokens))]
            )
            several = _in_turn(range(len(tokens)), groups)
            assert _reasoning_tokens(output_format, context, several) == one_by_one

        grouped()

    def test_only_outputs_without_reasoning_are_joined(self, output_format: OutputFormat) -> None:
        """A format whose `joins_outputs` is true counts no reasoning, whatever a model writes."""
        if not isinstance(output_format, JoiningFormat) or not output_format.joins_outputs:
            pytest.skip("outputs of the format are not joined")
        assert not self.reasons

        @self._settings()
        @given(self.soup(output_format), st.sampled_from(self.tails))
        def counted(written: str, tail: Tail) -> None:
            parser = output_format.parser(self.context(tail))
            for number, letter in enumerate(written):
                parser.feed(EngineOutput(text=letter, token_ids=(number,)))
            parser.finish("stop")
            assert parser.reasoning_tokens == 0

        counted()

    def test_the_cost_is_linear(self, output_format: OutputFormat) -> None:
        """Parsing 100,000 characters, one at a time, takes less than 24 times as long as an eighth of them; a quadratic
        parser takes 64 times as long."""
        kinds: list[Piece] = [TextPiece("word < and { more \n")]
        if self.reasons:
            kinds.append(ReasoningPiece("word < and { more \n"))
        if self.calls:
            kinds.append(CallPiece(self.tools[0].name, "word < and { more \n"))
        for kind in kinds:
            short, long = (self._parsing(output_format, kind, rounds) for rounds in (660, 5280))
            check_cost_is_linear(short, long, type(kind).__name__)

    def _parsing(
        self, output_format: OutputFormat, piece: Piece, rounds: int
    ) -> Callable[[], object]:
        """A function that parses one output, one character at a time."""
        match piece:
            case CallPiece(name, filler):
                arguments = json.dumps({"city": (filler * rounds).strip()})
                written = output_format.write([CallPiece(name, arguments)], tail="text")
            case _:
                long: Piece = type(piece)((piece.text * rounds).strip())
                written = output_format.write([long], tail="text")

        def parse() -> None:
            parser = output_format.parser(self.context())
            for letter in written:
                parser.feed(EngineOutput(text=letter))
            parser.finish("stop")

        return parse


class _Tokens:
    """A tokenizer whose token n is the n-th of some texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [self.texts.index(text)] if text in self.texts else [0] * len(text)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(self.texts[token] for token in token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self.texts[token_id].encode("utf-8", "replace")


def _in_turn(whole: Any, lengths: Sequence[int]) -> list[Any]:
    """Slices of `whole` with these lengths, which are repeated in this order."""
    found: list[Any] = []
    at = 0
    for length in cycle(lengths):
        if at >= len(whole):
            return found
        found.append(whole[at : at + length])
        at += length
    return found


def _reasoning_tokens(
    output_format: OutputFormat, context: ParserContext, groups: Sequence[Sequence[int]]
) -> int:
    """The number of reasoning tokens, if tokens arrive in these groups."""
    parser = output_format.parser(context)
    tokenizer = context.tokenizer
    assert tokenizer is not None
    for group in groups:
        text = tokenizer.decode(group)
        parser.feed(EngineOutput(text=text, token_ids=tuple(group)))
    parser.finish("stop")
    return parser.reasoning_tokens


def _said(found: list[Block], kind: str) -> str:
    """The concatenated text of all blocks of one kind."""
    return "".join(block.text for block in found if block.kind == kind)


def _common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _plain(found: list[Block]) -> list[Any]:
    """Normalize blocks, so that white space at their ends and in JSON does not matter."""
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
