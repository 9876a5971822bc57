"""Log probabilities whose bytes add up to the text; with vLLM's as the example."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.alignment import ScoredToken, TextAligner
from gateway.plugins.protocols import TokenLogprob
from gateway_vllm.logprobs import scored_tokens

# A vocabulary of bytes, whole and broken characters, and a special token.
VOCABULARY = [
    b"a",
    b"bc",
    b" the",
    "é".encode(),
    "漢字".encode(),
    b"\xc3",
    b"\xa9",
    b"\xe6\xbc",
    b"\xa2",
    b"\xf0\x9f",
    b"\xa6\x8a",
    b"\xff",
    b"<|end|>",
]
SPECIAL = len(VOCABULARY) - 1
REPLACEMENT = "�"


class Flat:
    """What vLLM hands over, for `ids`, each with `best` as alternatives."""

    def __init__(self, ids: list[int], best: list[int]) -> None:
        width = 1 + len(best)
        self.start_indices = [width * place for place in range(len(ids))]
        self.end_indices = [width * (place + 1) for place in range(len(ids))]
        self.token_ids = [token for token_id in ids for token in (token_id, *best)]
        self.logprobs = [-1.0] * len(self.token_ids)


def piece(token_id: int) -> tuple[str, bytes]:
    data = VOCABULARY[token_id]
    return data.decode("utf-8", "replace"), data


def flat(told: Flat) -> list[ScoredToken]:
    return list(scored_tokens(told, piece, 1))


def shown(ids: list[int], *, hidden: bool) -> str:
    """The text of the tokens as vLLM's detokenizer gives it: a broken end is held, or at the very end dropped."""
    data = b"".join(VOCABULARY[i] for i in ids if not (hidden and i == SPECIAL))
    return data.decode("utf-8", "replace").rstrip(REPLACEMENT)


def align(
    ids: list[int], cuts: list[int], *, hidden: bool, hold: int = 0, text: str | None = None
) -> list[TokenLogprob]:
    """Push the tokens in chunks; `hold` characters of text stay back until the end; `text` is what it all became."""
    aligner = TextAligner(piece, frozenset({SPECIAL}) if hidden else frozenset())
    settled: list[TokenLogprob] = []
    whole = shown(ids, hidden=hidden) if text is None else text
    given_text = begin = 0
    for cut in [*sorted({min(cut, len(ids)) for cut in cuts}), len(ids)]:
        last = cut == len(ids)
        so_far = shown(ids[:cut], hidden=hidden)
        if not whole.startswith(so_far):
            so_far = whole
        until = len(whole) if last else max(given_text, min(len(so_far), len(whole)) - hold)
        new = flat(Flat(ids[begin:cut], best=[0]))
        settled += aligner.push(new, whole[given_text:until], ended_by_token=False, last=last)
        begin, given_text = cut, until
        if last:
            break
    return settled


tokens = st.lists(st.integers(0, SPECIAL), max_size=20)
cuts = st.lists(st.integers(1, 20), max_size=6)


@given(tokens, cuts, st.booleans(), st.integers(0, 5))
def test_the_bytes_add_up_however_the_output_is_cut(
    ids: list[int], cut_at: list[int], hidden: bool, hold: int
) -> None:
    settled = align(ids, cut_at, hidden=hidden, hold=hold)
    assert b"".join(token.bytes for token in settled) == shown(ids, hidden=hidden).encode()
    assert [token.token_id for token in settled] == ids


@given(tokens, cuts, st.integers(0, 30))
def test_the_bytes_end_where_a_stop_string_cut_the_text(
    ids: list[int], cut_at: list[int], length: int
) -> None:
    text = shown(ids, hidden=True)[:length]
    settled = align(ids, cut_at, hidden=True, hold=3, text=text)
    assert b"".join(token.bytes for token in settled) == text.encode()
    assert [token.token_id for token in settled] == ids


@given(tokens, cuts, st.text(max_size=30))
def test_the_bytes_add_up_whatever_the_text_is(
    ids: list[int], cut_at: list[int], text: str
) -> None:
    settled = align(ids, cut_at, hidden=False, text=text)
    if ids:
        assert b"".join(token.bytes for token in settled) == text.encode()


@given(st.lists(st.sampled_from([0, 1, 2, 3, 4, SPECIAL]), max_size=20), cuts, st.integers(0, 5))
def test_tokens_of_whole_characters_keep_their_own_bytes(
    ids: list[int], cut_at: list[int], hold: int
) -> None:
    settled = align(ids, cut_at, hidden=False, hold=hold)
    assert [token.bytes for token in settled] == [VOCABULARY[token_id] for token_id in ids]


def test_a_whole_character_over_two_tokens_keeps_each_token_s_own_bytes() -> None:
    settled = align([5, 6, 0], [1, 2], hidden=False)
    assert [token.bytes for token in settled] == [b"\xc3", b"\xa9", b"a"]
    assert [token.token for token in settled] == [REPLACEMENT, REPLACEMENT, "a"]


def test_a_token_that_ends_the_output_has_no_bytes() -> None:
    aligner = TextAligner(piece, frozenset())
    settled = aligner.push(flat(Flat([0, SPECIAL], best=[])), "a", ended_by_token=True, last=True)
    assert [token.bytes for token in settled] == [b"a", b""]


def test_alternatives_keep_their_order_and_infinity_becomes_a_number() -> None:
    told = Flat([0], best=[2, 1])
    told.logprobs = [-0.5, -0.1, float("-inf")]
    [token] = TextAligner(piece, frozenset()).push(flat(told), "a", ended_by_token=False, last=True)
    assert [(top.token, top.logprob) for top in token.top] == [(" the", -0.1), ("bc", -9999.0)]
