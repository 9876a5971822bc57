"""Beam search, compared with a search over all sequences."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import EngineError, Unsupported
from gateway.generation.beam_search import Beams, BeamSearch
from gateway.plugins.protocols import EngineOutput, EngineRequest, Sampling, TokensPrompt
from tests.beam_engine import END, FAILS, TABLE, table_engine

ENGINE = table_engine()


def request(text: str = "say:", **sampling: object) -> EngineRequest:
    prompt = TokensPrompt(token_ids=ENGINE.tokenizer.encode(text))
    return EngineRequest(
        request_id="gen_1",
        prompt=prompt,
        sampling=Sampling(**{"max_tokens": 4, **sampling}),  # type: ignore[arg-type]
    )


def search(asked: EngineRequest, width: int, **settings: object) -> list[EngineOutput]:
    """The best beams."""
    beams = Beams(BeamSearch(width=width, **settings))  # type: ignore[arg-type]

    async def beam(index: int) -> EngineOutput:
        async with aclosing(beams.outputs(ENGINE, asked, index)) as outputs:
            [output] = [output async for output in outputs]
        return output

    async def all_beams() -> list[EngineOutput]:
        await beams.check(ENGINE, asked)
        return await asyncio.gather(*map(beam, range(width)))

    return asyncio.run(all_beams())


def best_of_all(length: int, prompt: int, penalty: float, count: int) -> list[str]:
    """The texts of the best sequences among all."""
    found: list[tuple[float, str]] = []
    for size in range(length + 1):
        for letters in product("abc", repeat=size):
            steps = [("", *letters)[at] for at in range(size)], letters
            total = sum(math.log(TABLE[last][each]) for last, each in zip(*steps, strict=True))
            if size < length:
                total += math.log(TABLE[letters[-1] if letters else ""][END])
            found.append((total / (prompt + size) ** penalty, "".join(letters)))
    return [text for _, text in sorted(found, reverse=True)[:count]]


@settings(max_examples=30)
@given(
    length=st.integers(1, 3),
    penalty=st.floats(-2, 4),
    text=st.sampled_from(["say:", "a long, long prompt:"]),
    count=st.integers(1, 4),
)
def test_a_search_that_is_wide_enough_finds_the_best_of_all(
    length: int, penalty: float, text: str, count: int
) -> None:
    asked = request(text, max_tokens=length)
    assert isinstance(asked.prompt, TokensPrompt)
    best = search(asked, 3**length, length_penalty=penalty)[:count]
    prompt = len(asked.prompt.token_ids)
    assert [output.text for output in best] == best_of_all(length, prompt, penalty, len(best))


def test_one_beam_is_the_greedy_output() -> None:
    [output] = search(request(max_tokens=3), 1)
    assert (
        output.text == "abb"
    )  # "a" is the most likely first token, though "bbb" is more likely as a whole
    assert output.finish_reason == "length"
    assert search(request(max_tokens=3), 2)[0].text == "bbb"


def test_a_beam_that_ends_is_told_with_its_end() -> None:
    outputs = search(request(max_tokens=2), 8)
    [end] = ENGINE.tokenizer.encode(END)
    ended = {output.text: output for output in outputs if output.finish_reason == "stop"}
    assert ended.keys() >= {"a", "c"}
    assert ended["c"].stop_reason == end
    assert list(ended["c"].token_ids) == [*ENGINE.tokenizer.encode("c"), end]


def test_ends_can_be_ruled_out_and_added() -> None:
    on = search(request(max_tokens=3, ignore_eos=True), 8)
    assert all(len(output.token_ids) == 3 and output.finish_reason == "length" for output in on)
    late = search(request(max_tokens=3, min_tokens=2), 8)
    assert all(len(output.token_ids) == 3 for output in late)
    [token] = ENGINE.tokenizer.encode("c")
    stopped = search(request(max_tokens=3, stop_token_ids=(token,), ignore_eos=True), 8)
    assert any(output.text == "a" and output.stop_reason == token for output in stopped)
    assert not any("c" in output.text for output in stopped)
    kept = request(max_tokens=3, stop_token_ids=(token,), include_stop_str_in_output=True)
    assert any(output.text == "ac" for output in search(kept, 8))


@pytest.mark.parametrize("penalty", [0.0, 1.0, 4.0])
def test_an_early_end_is_not_later(penalty: float) -> None:
    def steps(early: bool) -> int:
        ENGINE.requests.clear()
        search(request(max_tokens=30), 2, early=early, length_penalty=penalty)
        return len(ENGINE.requests)

    assert steps(True) <= steps(False)
    assert steps(True) < 30


def test_the_bytes_of_the_log_probabilities_are_the_text() -> None:
    for output in search(request(max_tokens=4, logprobs=1), 6):
        assert output.logprobs is not None
        assert b"".join(each.bytes for each in output.logprobs).decode() == output.text
        assert [each.token_id for each in output.logprobs] == list(output.token_ids)
        assert all(len(each.top) == 1 for each in output.logprobs)
        assert output.logprobs[0].top[0].token == "a"


def test_only_the_first_request_asks_for_log_probabilities_of_the_prompt() -> None:
    ENGINE.requests.clear()
    search(request(max_tokens=2, prompt_logprobs=0), 2)
    assert [each.sampling.prompt_logprobs for each in ENGINE.requests] == [0, None, None]
    assert len({each.request_id for each in ENGINE.requests}) == 3


def test_a_failure_of_one_request_is_that_of_all_beams() -> None:
    with pytest.raises(EngineError, match="The table is broken"):
        search(request(f"{FAILS}:"), 3)


def test_what_cannot_be_searched_is_refused_before_it_begins() -> None:
    with pytest.raises(Unsupported) as refused:
        search(request(stop=("x",)), 2)
    assert refused.value.param == "use_beam_search"
