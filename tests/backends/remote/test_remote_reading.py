"""Reading streams: however they are cut, the same comes out."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import EngineOutput, Sampling
from gateway_remote.output import OutputBuilder, SampledToken
from gateway_remote.sse import EventSplitter
from gateway_remote.tokenizer import JsonTokenizer, load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(vocabulary: str) -> JsonTokenizer:
    return load_tokenizer(Path(vocabulary))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


@given(
    st.lists(st.binary(max_size=20).filter(lambda b: not set(b) & {10, 13}), max_size=8),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_how_a_body_is_cut_does_not_matter(
    events: list[bytes], line: bytes, places: list[int]
) -> None:
    body = b"".join(b": comment" + line + b"data: " + each + line + line for each in events)
    splitter = EventSplitter()
    found = [event for piece in cut(body, places) for event in splitter.feed(piece)]
    assert found == [each for each in events if each]


def test_a_body_without_an_end_of_event_does_not_grow_for_ever() -> None:
    splitter = EventSplitter()
    with pytest.raises(ValueError, match="larger"):
        for _ in range(40):
            splitter.feed(b"x" * 1_000_000)


def run(
    tokenizer: JsonTokenizer, ids: list[int], sizes: list[int], sampling: Sampling, last: str
) -> tuple[str, list[int], list[EngineOutput]]:
    builder = OutputBuilder(tokenizer, sampling, eos_is_last=True, prompt_tokens=7)
    outputs: list[EngineOutput] = []
    at = 0
    sizes = [*sizes, len(ids)]
    while at < len(ids) or not builder.finished:
        size = max(1, sizes.pop(0)) if sizes else len(ids)
        part = ids[at : at + size]
        at += size
        scored = None
        if sampling.logprobs is not None:
            scored = [SampledToken(index, -0.5, [(index, -0.5), (5, -1.0)]) for index in part]
        finish = last if at >= len(ids) else None
        builder.add(part, scored, finish=finish, stop_reason=None)  # type: ignore[arg-type]
        output = builder.take()
        if output is not None:
            outputs.append(output)
        if builder.finished:
            break
    if not outputs or outputs[-1].finish_reason is None:
        builder.complete = True
        output = builder.take()
        assert output is not None
        outputs.append(output)
    assert [o.finish_reason is not None for o in outputs] == [False] * (len(outputs) - 1) + [True]
    text = "".join(o.text for o in outputs)
    return text, [t for o in outputs for t in o.token_ids], outputs


# Bytes of several characters, one of them of four bytes, a lone continuation byte, and both special tokens.
TOKENS = st.sampled_from([*b"abc ", *"é😀".encode(), 0x80, 4000, 4001, 300, 9999])


@settings(deadline=None, max_examples=300)
@given(
    ids=st.lists(TOKENS, min_size=1, max_size=24),
    sizes=st.lists(st.integers(1, 5), max_size=24),
    stops=st.lists(st.sampled_from(["a", "ab", "é", " c", "bca", "<|call"]), max_size=2),
    keep=st.booleans(),
    hide=st.booleans(),
    last=st.sampled_from(["stop", "length"]),
    logprobs=st.sampled_from([None, 0, 2]),
)
def test_how_tokens_come_does_not_change_the_output(
    tokenizer: JsonTokenizer,
    ids: list[int],
    sizes: list[int],
    stops: list[str],
    keep: bool,
    hide: bool,
    last: str,
    logprobs: int | None,
) -> None:
    sampling = Sampling(
        stop=tuple(stops),
        include_stop_str_in_output=keep,
        skip_special_tokens=hide,
        logprobs=logprobs,
    )
    text, given_ids, outputs = run(tokenizer, ids, sizes, sampling, last)
    one_by_one, all_ids, _ = run(tokenizer, ids, [1] * len(ids), sampling, last)
    assert text == one_by_one
    assert given_ids[: len(all_ids)] == all_ids[: len(given_ids)]
    assert outputs[0].prompt_tokens == 7
    if not any(stop in text for stop in stops):
        assert given_ids == ids or outputs[-1].stop_reason in stops
    if logprobs is not None:
        entries = [entry for o in outputs for entry in o.logprobs or ()]
        assert [entry.token_id for entry in entries] == given_ids
        assert (
            b"".join(entry.bytes for entry in entries).decode("utf-8", "replace").startswith(text)
            or b"".join(entry.bytes for entry in entries).decode() == text
        )
        assert all(len(entry.top) <= logprobs for entry in entries)


def test_logprobs_add_up_to_text_that_ends_at_a_stop_string(tokenizer: JsonTokenizer) -> None:
    ids = list(b"one two three")
    sampling = Sampling(stop=("two",), logprobs=1)
    text, _, outputs = run(tokenizer, ids, [1] * len(ids), sampling, "length")
    assert text == "one "
    assert outputs[-1].stop_reason == "two"
    assert b"".join(e.bytes for o in outputs for e in o.logprobs or ()) == b"one "


def test_the_token_that_ends_the_output_is_no_text_unless_it_is_wanted(
    tokenizer: JsonTokenizer,
) -> None:
    ids = [*b"yes", 4000]
    for keep, expected in ((False, "yes"), (True, "yes<|end|>")):
        sampling = Sampling(skip_special_tokens=False, include_stop_str_in_output=keep)
        text, given_ids, _ = run(tokenizer, ids, [4], sampling, "stop")
        assert text == expected
        assert given_ids == ids


def test_a_special_token_in_the_middle_is_text_where_formats_read_it(
    tokenizer: JsonTokenizer,
) -> None:
    ids = [4001, *b"x"]
    sampling = Sampling(skip_special_tokens=False)
    assert run(tokenizer, ids, [1, 1], sampling, "length")[0] == "<|call|>x"
    assert run(tokenizer, ids, [1, 1], Sampling(), "length")[0] == "x"


def test_ids_that_only_pad_the_vocabulary_make_no_text(tokenizer: JsonTokenizer) -> None:
    assert run(tokenizer, [*b"a", 10**6, *b"b"], [1, 1, 1], Sampling(), "length")[0] == "ab"
