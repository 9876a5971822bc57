"""The bytes of tokens, in the kinds of vocabularies that there are; needs no vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.tokenizer import HfTokenizer

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

TEXT = 'Hello, wörld! 漢字 🦊\n\t{"a": [1]}'


class Fast:
    """As much of a Hugging Face tokenizer as is used: the Rust one inside."""

    def __init__(self, backend: Any) -> None:
        self.backend_tokenizer = backend


def with_specials(backend: Any) -> HfTokenizer:
    backend.add_special_tokens([tokenizers.AddedToken("<|end|>", special=True)])
    backend.add_tokens([tokenizers.AddedToken("<think>", special=False, normalized=False)])
    return HfTokenizer(Fast(backend))


def byte_level() -> HfTokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([TEXT, "hello world " * 5], trainer)
    return with_specials(backend)


def sentencepiece() -> HfTokenizer:
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    for token in ("▁", "H", "e", "l", "o", "▁w", "!", "Hello"):
        vocabulary[token] = len(vocabulary)
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocabulary, [], byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    decoders = tokenizers.decoders
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return with_specials(backend)


KINDS = {"byte level": byte_level(), "sentencepiece": sentencepiece()}


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="▁")))
def test_the_bytes_of_a_text_s_tokens_are_the_text(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_added_tokens_are_read_and_special_ones_skipped_on_request(kind: str) -> None:
    tokenizer = KINDS[kind]
    ids = tokenizer.encode("<think>Hello<|end|>")
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"<think>Hello<|end|>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>Hello"
    assert tokenizer.special_ids == {ids[-1]}


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_an_id_outside_the_vocabulary_has_no_bytes(token_id: int) -> None:
    tokenizer = KINDS["byte level"]
    with pytest.raises(ValueError, match="outside"):
        tokenizer.token_bytes(token_id)
    assert tokenizer.piece(token_id) == ("", b"")


def test_another_user_s_settings_do_not_change_the_answers() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = HfTokenizer(Fast(backend))
    backend.enable_truncation(1)
    assert tokenizer.encode("b b b") == [1, 1, 1]
