"""Ranking options of requests, and the fusion of two rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from gateway.sdk import InvalidRequest
from gateway.sdk.wire import RankingOptions, not_among

RANKERS: Final = ["none", "auto", "default-2024-11-15"]
_K: Final = 60
"""The constant k of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): higher values weigh late ranks more.
"""


class Ranking(Struct, frozen=True, kw_only=True):
    """Ranking settings."""

    threshold: float = 0.0
    """Minimum score of a result."""
    embedding_weight: float = 1.0
    text_weight: float = 1.0
    reranks: bool = True
    """Whether the configured reranking model, if there is one, orders the results."""


PLAIN: Final = Ranking()
"""The default ranking."""


def ranking_of(options: RankingOptions | UnsetType) -> Ranking:
    """The ranking in a request's `ranking_options`. Raises `InvalidRequest`."""
    if options is UNSET:
        return PLAIN
    if options.ranker is not UNSET and options.ranker not in RANKERS:
        raise not_among(("ranking_options", "ranker"), options.ranker, RANKERS)
    threshold = 0.0 if options.score_threshold is UNSET else options.score_threshold
    if not 0 <= threshold <= 1:
        raise _invalid("score_threshold", f"{threshold}. It is a number from 0 to 1.")
    reranks = options.ranker != "none"
    hybrid = options.hybrid_search
    if hybrid is UNSET:
        return Ranking(threshold=threshold, reranks=reranks)
    for name in ("embedding_weight", "text_weight"):
        weight = getattr(hybrid, name)
        if not 0 <= weight < math.inf:
            raise _invalid(f"hybrid_search.{name}", f"{weight}. It is 0 or greater.")
    if not hybrid.embedding_weight + hybrid.text_weight:
        raise _invalid("hybrid_search", "one of its weights is greater than 0.")
    return Ranking(
        threshold=threshold,
        embedding_weight=hybrid.embedding_weight,
        text_weight=hybrid.text_weight,
        reranks=reranks,
    )


def fused(rankings: Sequence[tuple[float, Sequence[int]]]) -> Mapping[int, float]:
    """Combine weighted rankings by reciprocal rank fusion. Returns the scores of all entries, from 0 to 1.

    An entry that is first in all rankings has score 1.
    """
    whole = sum(weight for weight, _ in rankings)
    scores: dict[int, float] = {}
    for weight, ranking in rankings:
        for place, chunk in enumerate(ranking):
            share = weight / whole * (_K + 1) / (_K + 1 + place)
            scores[chunk] = scores.get(chunk, 0.0) + share
    return scores


def _invalid(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid 'ranking_options.{name}': {problem}",
        param=("ranking_options", name),
        code="invalid_value",
    )
