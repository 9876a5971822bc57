"""Scores: the protocol of engines whose models rate how well texts match (rerankers, cross-encoders)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

TextPair: TypeAlias = tuple[str, str]
"""A query and a document. Neither is empty."""


class ScoringInfo(Struct, frozen=True, kw_only=True):
    """Properties of a model's scores."""

    max_input_tokens: int | None = None
    """Maximum length of one pair, including what the model's own template adds. None if only the engine's upstream
    knows."""
    truncates: bool = False
    """Whether requests may ask for truncation: `ScoreRequest.max_tokens_per_document` and `truncate_to`."""


class ScoreRequest(Struct, frozen=True, kw_only=True):
    """Pairs to score."""

    request_id: str
    pairs: Sequence[TextPair]
    """At least one. The engine combines the two texts of a pair by its model's own rule."""
    max_tokens_per_document: int | None = None
    """Truncate each document to this many tokens. Only if `ScoringInfo.truncates`."""
    truncate_to: int | None = None
    """Truncate each pair to this many tokens; -1: to the model's maximum. Only if `ScoringInfo.truncates`."""
    adapter: str | None = None
    priority: int = 0
    """Lower runs earlier, as in vLLM."""
    user: str | None = None
    """The client's end-user id. For engines that forward requests; others ignore it."""
    trace_headers: Mapping[str, str] | None = None


class ScoreResult(Struct, frozen=True, kw_only=True):
    """One score per pair, in the order of the pairs."""

    scores: Sequence[float]
    """Finite numbers; higher is more relevant. Only scores of the same model and query can be compared."""
    prompt_tokens: int
    """Sum over all pairs."""


@runtime_checkable
class ScoringEngine(Protocol):
    """The additional methods of an `Engine` whose capabilities include `rerank`.

    An engine whose model only scores has neither `tokens` nor `messages` among its capabilities, and is never asked to
    generate.
    """

    @property
    def scoring(self) -> ScoringInfo: ...

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Score all pairs. The score of a pair does not depend on its position among the others.

        Cancelling the awaiting task aborts the request in the engine. Raises `InvalidRequest` for a pair that cannot be
        scored (`param` is `pairs`, or `pairs[3]` for one of several, or `pairs[3][1]` for the document of one),
        `EngineError` if this request fails, and `EngineUnavailable` if the engine is down.
        """
        ...
