from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import EngineOutput, TokenLogprob


def token(data: bytes) -> TokenLogprob:
    return TokenLogprob(token_id=0, token=data.decode("utf-8", "replace"), logprob=-1.0, bytes=data)


@given(
    st.text(min_size=1, max_size=40),
    st.lists(st.integers(0, 160), max_size=12),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_each_token_is_given_once_with_the_text_it_begins(
    text: str, byte_cuts: list[int], char_cuts: list[int]
) -> None:
    text = text.encode("utf-8", "replace").decode()
    raw = text.encode()
    points = sorted({min(i, len(raw)) for i in byte_cuts} | {0, len(raw)})
    tokens = [token(raw[a:b]) for a, b in itertools.pairwise(points)]
    aligner = LogprobAligner()
    aligner.push(EngineOutput(text=text, logprobs=tokens))
    ends = sorted({min(i, len(text)) for i in char_cuts} | {0, len(text)})
    taken = []
    for a, b in itertools.pairwise(ends):
        got = aligner.take(a, text[a:b])
        taken += got
    assert taken == tokens


@given(
    st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=12),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_bytes_that_are_no_text_lose_no_token(pieces: list[bytes], char_cuts: list[int]) -> None:
    """Small models write broken UTF-8, which is shown as replacement characters."""
    text = b"".join(pieces).decode("utf-8", "replace")
    tokens = [token(piece) for piece in pieces]
    aligner = LogprobAligner()
    aligner.push(EngineOutput(text=text, logprobs=tokens))
    ends = sorted({min(i, len(text)) for i in char_cuts} | {0, len(text)})
    taken = [t for a, b in itertools.pairwise(ends) for t in aligner.take(a, text[a:b])]
    assert taken == tokens


def test_what_follows_broken_text_is_still_aligned() -> None:
    aligner = LogprobAligner()
    pieces = [b"\xff\xfe", b"</think>", b"a", b"b"]
    text = b"".join(pieces).decode("utf-8", "replace")
    aligner.push(EngineOutput(text=text, logprobs=[token(piece) for piece in pieces]))
    assert [t.token for t in aligner.take(text.index("a"), "ab")] == ["a", "b"]


def test_reasoning_and_markers_are_passed_over() -> None:
    aligner = LogprobAligner()
    pieces = ["<think>", "hm", "</think>", "\n\n", "Hel", "lo"]
    text = "".join(pieces)
    for piece in pieces:
        aligner.push(EngineOutput(text=piece, logprobs=[token(piece.encode())]))
    assert [t.token for t in aligner.take(text.index("Hel"), "Hello")] == ["Hel", "lo"]


def test_a_prefill_has_no_tokens_and_shifts_the_others() -> None:
    aligner = LogprobAligner()
    aligner.skip("{é")
    aligner.push(EngineOutput(text="ab", logprobs=[token(b"a"), token(b"b")]))
    assert [t.token for t in aligner.take(2, "ab")] == ["a", "b"]


def test_text_that_is_no_slice_of_the_output_has_no_log_probabilities() -> None:
    aligner = LogprobAligner()
    aligner.push(EngineOutput(text="a", logprobs=[token(b"a")]))
    assert aligner.take(-1, "something") == []


@given(
    st.lists(st.sampled_from([b"", b"a", b"bc", "é".encode(), b"\xc3"]), min_size=1, max_size=12),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_with_every_token_none_is_lost_and_their_order_is_kept(
    pieces: list[bytes], char_cuts: list[int]
) -> None:
    """Special tokens and what ends the output are not in the text."""
    tokens = [
        TokenLogprob(token_id=number, token="", logprob=-1.0, bytes=piece)
        for number, piece in enumerate(pieces)
    ]
    text = b"".join(pieces).decode("utf-8", "replace")
    aligner = LogprobAligner(every=True)
    aligner.push(EngineOutput(text=text, logprobs=tokens))
    ends = sorted({min(i, len(text)) for i in char_cuts} | {0, len(text)})
    taken = [t for a, b in itertools.pairwise(ends) for t in aligner.take(a, text[a:b])]
    assert [*taken, *aligner.rest()] == tokens
    assert aligner.rest() == []
