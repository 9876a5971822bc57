"""The scripted engine's tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_scripted import ScriptedTokenizer
from gateway_scripted.tokenizer import CONTROL_TOKENS, VISIBLE_TOKENS

TOKENIZER = ScriptedTokenizer()
TEXT = st.lists(st.text() | st.sampled_from([*CONTROL_TOKENS, *VISIBLE_TOKENS])).map("".join)


@given(TEXT.filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text)))
def test_any_text_goes_there_and_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text
    assert b"".join(map(TOKENIZER.token_bytes, ids)) == text.encode()
    assert all(0 <= each < TOKENIZER.vocab_size for each in ids)


@given(st.binary(min_size=1, max_size=4), st.binary(min_size=1, max_size=4))
def test_different_bytes_have_different_ids(one: bytes, other: bytes) -> None:
    """Also as raw bytes, which no text would give: every id of the vocabulary says its own bytes."""
    first, second = (TOKENIZER.encode(data.decode("latin-1")) for data in (one, other))
    assert (first == second) == (one == other)


@given(st.integers(0, TOKENIZER.vocab_size - 1))
def test_every_id_has_bytes_or_is_refused(token_id: int) -> None:
    if len(CONTROL_TOKENS) + len(VISIBLE_TOKENS) <= token_id < 1024:
        with pytest.raises(ValueError, match="not a token id"):
            TOKENIZER.token_bytes(token_id)
    else:
        assert TOKENIZER.token_bytes(token_id)


@pytest.mark.parametrize("bad", [-1, 1023, TOKENIZER.vocab_size, 2**70])
def test_ids_outside_the_vocabulary_are_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="not a token id"):
        TOKENIZER.token_bytes(bad)


@pytest.mark.parametrize("marker", [*CONTROL_TOKENS, *VISIBLE_TOKENS])
def test_a_marker_is_one_token(marker: str) -> None:
    assert len(TOKENIZER.encode(f"a{marker}b")) == 3
    assert TOKENIZER.token_bytes(TOKENIZER.id_of(marker)) == marker.encode()


def test_only_control_tokens_are_skipped() -> None:
    ids = TOKENIZER.encode("<|im_start|>a<think>b</think><|im_end|>")
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "a<think>b</think>"


def test_a_marker_without_an_id_is_cut() -> None:
    assert len(TOKENIZER.encode("<function=get>")) > 2
    own = ScriptedTokenizer(["<function="])
    assert own.decode(own.encode("<function=get>")[:1]) == "<function="


def test_a_character_may_be_cut_in_two() -> None:
    ids = TOKENIZER.encode("日本語")
    assert "\ufffd" in TOKENIZER.decode(ids[:1])


def test_tokens_are_about_four_characters() -> None:
    text = "The quick brown fox jumps over the lazy dog, and considers it extraordinarily amusing."
    assert 2.5 < len(text) / len(TOKENIZER.encode(text)) < 5


def test_a_lone_surrogate_is_no_error() -> None:
    assert TOKENIZER.decode(TOKENIZER.encode("a\ud800b")) == "a?b"


def test_too_many_markers_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1024"):
        ScriptedTokenizer([f"<m{number}>" for number in range(1024)])


@pytest.mark.parametrize("word", ["a", " ", "<", "[<", "é", "a<|im_end|>", "some words "])
def test_a_long_text_is_read_with_pauses_and_loses_nothing(word: str) -> None:
    tokenizer = ScriptedTokenizer()
    text = word * (200_000 // len(word))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids.count(tokenizer.id_of("<|im_end|>")) == text.count("<|im_end|>")
