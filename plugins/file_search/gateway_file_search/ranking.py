"""What requests say of ranking, and how two rankings become one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from gateway.errors import InvalidRequest
from gateway.wire.decoding import not_among
from gateway.wire.tools import RankingOptions

RANKERS: Final = ["none", "auto", "default-2024-11-15"]
_K: Final = 60
"""Of reciprocal rank fusion, as in Cormack, Clarke and Büttcher's paper of 2009: how slowly later ranks count for less."""


class Ranking(Struct, frozen=True, kw_only=True):
    """How results are ranked."""

    threshold: float = 0.0
    """The least score of a result."""
    embedding_weight: float = 1.0
    text_weight: float = 1.0


PLAIN: Final = Ranking()
"""Where a request says nothing."""


def ranking_of(options: RankingOptions | UnsetType) -> Ranking:
    """What a request's `ranking_options` say. Raises `InvalidRequest`."""
    if options is UNSET:
        return PLAIN
    if options.ranker is not UNSET and options.ranker not in RANKERS:
        raise not_among("ranking_options.ranker", options.ranker, RANKERS)
    threshold = 0.0 if options.score_threshold is UNSET else options.score_threshold
    if not 0 <= threshold <= 1:
        raise _wrong("score_threshold", f"{threshold}. It is a number from 0 to 1.")
    hybrid = options.hybrid_search
    if hybrid is UNSET:
        return Ranking(threshold=threshold)
    for name in ("embedding_weight", "text_weight"):
        weight = getattr(hybrid, name)
        if not 0 <= weight < math.inf:
            raise _wrong(f"hybrid_search.{name}", f"{weight}. It is 0 or greater.")
    if not hybrid.embedding_weight + hybrid.text_weight:
        raise _wrong("hybrid_search", "one of its weights is greater than 0.")
    return Ranking(
        threshold=threshold,
        embedding_weight=hybrid.embedding_weight,
        text_weight=hybrid.text_weight,
    )


def fused(rankings: Sequence[tuple[float, Sequence[int]]]) -> Mapping[int, float]:
    """The scores, from 0 to 1, of all that is in any of the rankings, each of which has a weight: reciprocal rank fusion.

    What is first in all of them has 1.
    """
    whole = sum(weight for weight, _ in rankings)
    scores: dict[int, float] = {}
    for weight, ranking in rankings:
        for place, chunk in enumerate(ranking):
            share = weight / whole * (_K + 1) / (_K + 1 + place)
            scores[chunk] = scores.get(chunk, 0.0) + share
    return scores


def _wrong(name: str, problem: str) -> InvalidRequest:
    param = f"ranking_options.{name}"
    return InvalidRequest(f"Invalid '{param}': {problem}", param=param, code="invalid_value")
