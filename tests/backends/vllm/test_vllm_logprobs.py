"""From vLLM's flat lists of log probabilities to tokens with alternatives; needs no vLLM."""

from __future__ import annotations

import pytest
from msgspec import Struct

from gateway_vllm.logprobs import prompt_logprobs, scored_tokens


class Flat(Struct):
    start_indices: list[int]
    end_indices: list[int]
    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int | None] = []


def piece(token_id: int) -> tuple[str, bytes]:
    return str(token_id), str(token_id).encode()


def alternatives(ids: list[int], values: list[float], count: int) -> list[int]:
    flat = Flat([0], [len(ids)], ids, values)
    [token] = scored_tokens(flat, piece, count)
    assert token.token_id == ids[0]
    return [top.token_id for top in token.top]


@pytest.mark.parametrize(
    ("ids", "values", "expected"),
    [
        ([7, 7, 8, 9], [-0.1, -0.1, -2.0, -3.0], [7, 8, 9]),
        ([8, 7, 8, 9], [-2.0, -0.1, -2.0, -3.0], [7, 8, 9]),
        ([5, 7, 8, 9], [-9.0, -0.1, -2.0, -3.0], [7, 8, 9]),
        # Joined outputs: a token is listed once.
        ([7, 8, 9], [-0.1, -2.0, -3.0], [7, 8, 9]),
        ([8, 7, 9], [-2.0, -0.1, -3.0], [7, 8, 9]),
        ([9, 7, 8], [-3.0, -0.1, -2.0], [7, 8, 9]),
    ],
)
def test_each_token_has_its_most_likely_alternatives(
    ids: list[int], values: list[float], expected: list[int]
) -> None:
    assert alternatives(ids, values, 3) == expected


def test_without_alternatives_there_are_none() -> None:
    assert alternatives([7], [-0.1], 0) == []
    assert list(scored_tokens(None, piece, 3)) == []


def test_a_token_of_the_prompt_has_its_rank() -> None:
    flat = Flat([0, 0, 2], [0, 2, 4], [5, 7, 8, 8], [-9.0, -0.1, -0.2, -0.2], [81, 1, 1, 1])
    assert [token and token.rank for token in prompt_logprobs(flat, piece)] == [None, 81, 1]
