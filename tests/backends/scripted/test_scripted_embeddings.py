"""The scripted engine's made-up vectors."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import EmbeddingRequest
from gateway_doctor.checks.embedding_checks import cosine
from gateway_scripted import ScriptedEngine
from gateway_scripted.made_up_vectors import made_up_vector
from gateway_testing import EmbeddingContract

LETTERS = st.characters(categories=("Ll", "Nd")).filter(
    # Not so the Turkish dotless i, whose capital is that of another letter.
    lambda letter: letter.upper().casefold() == letter.casefold()
)
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1)


class TestScriptedEngineEmbeds(EmbeddingContract):
    @pytest.fixture
    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(max_model_len=4096, adapters=["noise"])


class TestScriptedEngineThatOnlyEmbeds(EmbeddingContract):
    @pytest.fixture
    def engine(self) -> ScriptedEngine:
        return ScriptedEngine(max_model_len=4096, dimensions=3, generates=False)


@settings(max_examples=200, deadline=None)
@given(WORDS, st.randoms(use_true_random=False))
def test_order_and_case_of_words_do_not_count(words: list[str], chance: random.Random) -> None:
    shuffled = list(words)
    chance.shuffle(shuffled)
    one = made_up_vector(" ".join(words), 32)
    other = made_up_vector(" ".join(shuffled).upper(), 32)
    assert cosine(one, other) > 0.999


def test_texts_that_share_words_are_nearer() -> None:
    cat = made_up_vector("The cat sat on the mat", 64)
    near = made_up_vector("A cat was on the mat", 64)
    far = made_up_vector("Quarterly revenue rose sharply", 64)
    assert cosine(cat, near) > 0.5 > cosine(cat, far)


def test_another_process_makes_the_same_vectors() -> None:
    code = (
        "from gateway_scripted.made_up_vectors import made_up_vector as v;"
        "print(v('Hello 漢字', 8).tobytes().hex())"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == made_up_vector("Hello 漢字", 8).tobytes().hex()


@pytest.mark.anyio
async def test_an_engine_that_does_not_embed_does_not_say_so() -> None:
    assert "embeddings" not in ScriptedEngine(dimensions=None).capabilities
    only = ScriptedEngine(generates=False)
    assert only.capabilities == {"embeddings"}
    request = EmbeddingRequest(request_id="1", inputs=[only.tokenizer.encode("hello")])
    assert (await only.embed(request)).vectors == [made_up_vector("hello", 64)]
