"""The text of many tokens does not depend on how they are divided."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation import token_texts as module
from gateway.generation.token_texts import text_of_tokens, token_texts
from gateway_remote.tokenizer import load_tokenizer

pytest.importorskip("tokenizers", reason="tokenizers is not installed")
TOKENIZER = load_tokenizer(Path(__file__).parents[2] / "models" / "tiny-qwen3" / "tokenizer.json")


@pytest.fixture(autouse=True, scope="module")
def few_at_once() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_ONCE", 3)
        yield


@given(st.text(max_size=40), st.booleans())
def test_the_text_of_tokens_is_what_the_tokenizer_says(text: str, skips: bool) -> None:
    ids = TOKENIZER.encode(f"<|im_start|>{text}<|im_end|>")
    made = text_of_tokens(TOKENIZER, ids, skip_special_tokens=skips)
    assert made == TOKENIZER.decode(ids, skip_special_tokens=skips)


@given(st.lists(st.integers(0, 1180), max_size=20))
def test_each_token_has_its_own_text(ids: list[int]) -> None:
    assert token_texts(TOKENIZER, ids * 2) == [TOKENIZER.decode([each]) for each in ids] * 2
