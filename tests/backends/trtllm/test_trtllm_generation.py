"""Text and log probabilities do not depend on how tokens are cut into steps."""

from __future__ import annotations

import codecs
import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import EngineError
from gateway.engines.tokenizer import HfTokenizer
from gateway.plugins.protocols import EngineOutput, Sampling
from gateway_trtllm.generation import TrtllmGeneration

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"


class Entry(NamedTuple):
    logprob: float
    rank: int


class Fast:
    backend_tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))


TOKENIZER = HfTokenizer(Fast())
END = TOKENIZER.special["<|im_end|>"]
tokens = st.lists(st.integers(0, 1180), min_size=1, max_size=15)
cuts = st.sets(st.integers(1, 15))


def text_of(ids: list[int]) -> str:
    """The text of `ids`; a character that the output ends in is none."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(b"".join(TOKENIZER.piece(i)[1] for i in ids))


def test_a_character_that_the_limit_cuts_is_no_text() -> None:
    [whole, first] = (
        next(i for i in range(1180) if TOKENIZER.piece(i)[1] == data) for data in (b"a", b"\xf0")
    )
    assert [output.text for output in run([whole, first], {1}, Sampling())] == ["a", ""]


def run(ids: list[int], cut_at: set[int], sampling: Sampling) -> list[EngineOutput]:
    generation = TrtllmGeneration(TOKENIZER, sampling, ends=(END,))
    ends = sorted({cut for cut in cut_at if cut < len(ids)} | {len(ids)})
    outputs: list[EngineOutput] = []
    begin = 0
    for end in ends:
        step = ids[begin:end]
        told: Any = [{i: Entry(-1.0, 1), 0: Entry(-2.0, 2)} for i in step]
        finish = None if end < len(ids) else "stop" if ids[-1] == END else "length"
        outputs.append(generation.feed(step, told, finish))
        if outputs[-1].finish_reason is not None:
            break
        begin = end
    return outputs


@settings(deadline=None)
@given(tokens, cuts, st.booleans(), st.integers(0, 1), st.data())
def test_how_the_steps_are_cut_does_not_matter(
    ids: list[int], cut_at: set[int], ends: bool, logprobs: int, data: st.DataObject
) -> None:
    ids = [*ids, END] if ends else ids
    plain = text_of(ids[: len(ids) - ends])
    stop: tuple[str, ...] = ()
    if plain and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(plain) - 1))
        stop = (plain[at : at + 3],)
    sampling = Sampling(stop=stop, logprobs=logprobs, skip_special_tokens=False)
    outputs = run(ids, cut_at, sampling)
    text = "".join(output.text for output in outputs)
    if stop:
        assert text == plain[: plain.index(stop[0])]
        assert outputs[-1].stop_reason == stop[0]
    else:
        assert text == plain
    made = [token for output in outputs for token in output.logprobs or ()]
    assert b"".join(token.bytes for token in made) == text.encode()
    given_ids = [i for output in outputs for i in output.token_ids]
    assert given_ids == [token.token_id for token in made]
    assert given_ids == ids[: len(given_ids)]


@given(tokens, cuts)
def test_no_stop_string_counts_before_min_tokens(ids: list[int], cut_at: set[int]) -> None:
    plain = text_of(ids)
    sampling = Sampling(stop=tuple(set(plain) - {"\ufffd"}), min_tokens=len(ids))
    assert "".join(output.text for output in run(ids, cut_at, sampling)) == plain


def test_alternatives_are_the_best_and_the_token_itself_need_not_be_one() -> None:
    generation = TrtllmGeneration(TOKENIZER, Sampling(logprobs=2), ends=())
    told: Any = {3: Entry(-5.0, 9), 1: Entry(-2.0, 2), 2: Entry(-0.5, 1), 4: Entry(-math.inf, 3)}
    output = generation.feed([3], [told], "length")
    assert output.logprobs is not None
    [token] = output.logprobs
    assert token.logprob == -5.0
    assert [top.token_id for top in token.top] == [2, 1]


@pytest.mark.parametrize("reason", ["timeout", "not_finished"])
def test_an_end_that_no_client_can_be_told_is_an_error(reason: str) -> None:
    with pytest.raises(EngineError):
        TrtllmGeneration(TOKENIZER, Sampling(), ends=()).feed([], [], reason)


def test_log_probabilities_that_are_missing_are_an_error() -> None:
    generation = TrtllmGeneration(TOKENIZER, Sampling(logprobs=0), ends=())
    with pytest.raises(EngineError, match="0 of 1"):
        generation.feed([1], [], None)
    with pytest.raises(EngineError, match="no log probability for the token 1"):
        generation.feed([1], [{2: Entry(-1.0, 1)}], None)
    with pytest.raises(EngineError, match="1 of 2"):
        generation.prompt_logprobs([1, 2, 3], [{2: Entry(-1.0, 1)}])
