"""Converts vLLM's log probabilities, which are flat lists over all tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gateway.sdk import TokenLogprob
from gateway.sdk.engines import Piece, ScoredToken, as_prompt, scored


class FlatLogprobs(Protocol):
    """The used part of vLLM's class of this name: flat lists of positions, the sampled token first, then the most
    likely."""

    start_indices: list[int]
    end_indices: list[int]
    token_ids: list[int]
    logprobs: list[float]
    ranks: list[int | None]


def scored_tokens(flat: FlatLogprobs | None, piece: Piece, count: int) -> Iterator[ScoredToken]:
    """Yield the sampled tokens with their `count` alternatives."""
    if flat is not None:
        for token in _positions(flat, piece, count):
            assert token is not None, "every sampled token has a log probability"
            yield token


def prompt_logprobs(flat: FlatLogprobs, piece: Piece) -> list[TokenLogprob | None]:
    """The log probabilities of the prompt's tokens; None for the first, which has none."""
    ranks = [
        None if start == end else flat.ranks[start]
        for start, end in zip(flat.start_indices, flat.end_indices, strict=True)
    ]
    return [
        None if token is None else as_prompt(token._replace(rank=rank), piece)
        for token, rank in zip(_positions(flat, piece), ranks, strict=True)
    ]


def _positions(flat: FlatLogprobs, piece: Piece, count: int = 0) -> Iterator[ScoredToken | None]:
    """Yield one entry per position; None for a position without log probabilities (the first of a prompt).

    Where vLLM has joined the outputs of several steps, a sampled token that is one of the `count` most likely is listed only once.
    """
    ids, values = flat.token_ids, flat.logprobs
    for start, end in zip(flat.start_indices, flat.end_indices, strict=True):
        if start == end:
            yield None
        else:
            others = [*zip(ids[start + 1 : end], values[start + 1 : end], strict=True)]
            if len(others) < count and ids[start] not in ids[start + 1 : end]:
                place = sum(value > values[start] for _, value in others)
                others.insert(place, (ids[start], values[start]))
            yield scored(ids[start], values[start], others, piece)
