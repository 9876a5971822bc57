"""What token ids add to the text: which markers are real, and how many tokens were reasoning."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import EngineOutput, ParserContext, Tokenizer
from gateway_harmony import HarmonyFormat
from gateway_scripted import ScriptedTokenizer
from gateway_testing.reading import Block, blocks

SCRIPTED = ScriptedTokenizer()
HEAD = "<|channel|>analysis<|message|>"
TAIL = "<|end|><|start|>assistant<|channel|>final<|message|>"


def run(
    tokenizer: Tokenizer, ids: Sequence[int], sizes: Sequence[int], lag: int = 0
) -> tuple[list[Block], int, int]:
    """Feed `ids` in outputs of these sizes; text is `lag` tokens late, and never cut inside a character."""
    parser = HarmonyFormat(tokenizer).parser(ParserContext(tokenizer=tokenizer))
    deltas = []
    at, told = 0, 0
    text = tokenizer.decode(ids)
    for size in itertools.chain(sizes, itertools.repeat(7)):
        if at >= len(ids):
            break
        part = ids[at : at + size]
        at += len(part)
        known = b"".join(map(tokenizer.token_bytes, ids[: max(0, at - lag)]))
        upto = len(known.decode("utf-8", "ignore"))
        deltas += parser.feed(EngineOutput(text=text[told:upto], token_ids=part))
        told = upto
    if told < len(text):
        deltas += parser.feed(EngineOutput(text=text[told:]))
    deltas += parser.finish("stop")
    return blocks(deltas), parser.reasoning_tokens, parser.recoveries


def spelt(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of `text` without special tokens, as a model writes about its own format."""
    ids: list[int] = []
    for part in text.split("<"):
        ids += [*tokenizer.encode("<"), *tokenizer.encode(part)]
    return ids[len(tokenizer.encode("<")) :]


PROSE = st.lists(
    st.sampled_from(
        ["a word ", "<|end|>", "<|channel|>final<|message|>", "日本🙂", "<", "\n", "é"]
    ),
    max_size=8,
).map("".join)
SIZES = st.lists(st.integers(1, 12), max_size=12)


@settings(max_examples=150, deadline=None)
@given(PROSE, PROSE, SIZES, st.integers(0, 3))
def test_markers_that_are_spelt_out_are_prose_and_reasoning_is_counted_exactly(
    thought: str, answer: str, sizes: list[int], lag: int
) -> None:
    thought_ids = spelt(SCRIPTED, thought)
    ids = [*SCRIPTED.encode(HEAD), *thought_ids, *SCRIPTED.encode(TAIL)]
    ids += [*spelt(SCRIPTED, answer), *SCRIPTED.encode("<|return|>")]
    found, counted, recoveries = run(SCRIPTED, ids, sizes, lag)
    assert [(b.kind, b.text) for b in found] == [
        (kind, text) for kind, text in (("reasoning", thought), ("text", answer)) if text
    ]
    assert counted == len(thought_ids)
    assert recoveries == 0


def test_outside_of_contents_markers_that_are_spelt_out_count() -> None:
    ids = SCRIPTED.encode("<|channel|>analysis<|message|>hm<|end|>")
    ids = [*ids, *spelt(SCRIPTED, "<|start|>assistant"), *SCRIPTED.encode("<|channel|>")]
    ids += [
        *spelt(SCRIPTED, "commentary to=functions.f<|message|>{}"),
        *SCRIPTED.encode("<|call|>"),
    ]
    for sizes in ([1] * len(ids), [len(ids)]):
        found, counted, _ = run(SCRIPTED, ids, sizes)
        assert found == [Block("reasoning", "hm"), Block("call", "{}", "f")]
        assert counted == len(SCRIPTED.encode("hm"))


def test_the_vocabulary_of_gpt_oss_is_read_likewise(gpt_oss_tokenizer: Tokenizer) -> None:
    thought = "We say <|end|> here, 日本🙂."
    thought_ids = spelt(gpt_oss_tokenizer, thought)
    ids = [*gpt_oss_tokenizer.encode(HEAD), *thought_ids, *gpt_oss_tokenizer.encode(TAIL + "Hi")]
    for sizes in ([1] * len(ids), [len(ids)], [5] * len(ids)):
        found, counted, recoveries = run(gpt_oss_tokenizer, ids, sizes)
        assert found == [Block("reasoning", thought), Block("text", "Hi")]
        assert (counted, recoveries) == (len(thought_ids), 0)


def test_text_before_the_first_token_is_a_prefill_whose_markers_count() -> None:
    parser = HarmonyFormat(SCRIPTED).parser(ParserContext(tokenizer=SCRIPTED))
    deltas = [*parser.feed(EngineOutput(text=HEAD))]
    ids = SCRIPTED.encode("why" + TAIL + "so")
    deltas += parser.feed(EngineOutput(text="why" + TAIL + "so", token_ids=ids))
    deltas += parser.finish("stop")
    assert blocks(deltas) == [Block("reasoning", "why"), Block("text", "so")]
    assert parser.reasoning_tokens == len(SCRIPTED.encode("why"))


def test_where_tokens_and_text_do_not_fit_the_text_is_believed() -> None:
    parser = HarmonyFormat(SCRIPTED).parser(ParserContext(tokenizer=SCRIPTED))
    deltas = []
    output = HEAD + "why" + TAIL + "so"
    for letter in output:
        # Every letter comes with a token of three others.
        deltas += parser.feed(EngineOutput(text=letter, token_ids=SCRIPTED.encode("xyz")[:1]))
    deltas += parser.finish("stop")
    assert blocks(deltas)[-1].text.endswith("so")


def test_malformed_utf8_does_not_hide_the_markers_behind_it() -> None:
    lone = next(i for i in range(2000) if _bytes(i) == b"\xc3")
    ids = [*SCRIPTED.encode(HEAD), lone, *SCRIPTED.encode("x" + TAIL + "so")]
    # An engine that shows one replacement character more than the parser expects.
    text = HEAD + "��x" + TAIL + "so"
    parser = HarmonyFormat(SCRIPTED).parser(ParserContext(tokenizer=SCRIPTED))
    deltas = [*parser.feed(EngineOutput(text=text, token_ids=ids)), *parser.finish("stop")]
    assert blocks(deltas) == [Block("reasoning", "��x"), Block("text", "so")]


def _bytes(token_id: int) -> bytes:
    try:
        return SCRIPTED.token_bytes(token_id)
    except ValueError:
        return b""


def test_tokens_whose_text_never_came_count_for_what_was_open() -> None:
    """A generation that was cut off inside a character, and one whose last token is the marker it stopped at."""
    for output, said in ((HEAD + "why 日本", HEAD + "why "), (HEAD + "why<|end|>", HEAD + "why")):
        ids = SCRIPTED.encode(output)
        expected = len(ids) - len(SCRIPTED.encode(HEAD)) - output.count("<|end|>")
        parser = HarmonyFormat(SCRIPTED).parser(ParserContext(tokenizer=SCRIPTED))
        parser.feed(EngineOutput(text=said, token_ids=ids))
        parser.finish("length")
        assert parser.reasoning_tokens == expected


def test_without_a_tokenizer_single_tokens_are_counted_exactly() -> None:
    parser = HarmonyFormat().parser(ParserContext())
    ids = SCRIPTED.encode(HEAD + "one two three" + TAIL + "four")
    for token_id in ids:
        parser.feed(EngineOutput(text=SCRIPTED.decode([token_id]), token_ids=(token_id,)))
    parser.finish("stop")
    assert parser.reasoning_tokens == len(SCRIPTED.encode("one two three"))


def test_a_long_output_keeps_no_tokens() -> None:
    parser = HarmonyFormat(SCRIPTED).parser(ParserContext(tokenizer=SCRIPTED))
    parser.feed(EngineOutput(text=HEAD, token_ids=SCRIPTED.encode(HEAD)))
    for _ in range(500):
        parser.feed(EngineOutput(text="a word ", token_ids=SCRIPTED.encode("a word ")))
    track = parser._track
    assert not track._starts
    assert len(track._reasoning_changes) + len(track._unseen) == 0
