"""Calls the rerank route of the replicas, with documents split into batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import EngineError, ScoreRequest, ScoreResult, TextPair
from gateway.sdk.engines import estimated_tokens
from gateway_remote.dispatch import Dispatcher
from gateway_remote.reading import reader_of

_PIECE = 128
"""Documents per call. Batches may go to different replicas."""
_CALLS = 8
"""Maximum number of concurrent calls per request."""
_RESULT_BYTES = 4096
"""Maximum size of a result, besides its document, which some servers repeat."""
_ESCAPED = 6
"""Maximum growth of a text in JSON."""


class _Result(Struct):
    index: int
    relevance_score: float


class _Usage(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None

    @property
    def tokens(self) -> int:
        return max(0, self.prompt_tokens or self.total_tokens or 0)


class _Answer(Struct):
    results: list[_Result]
    usage: _Usage | None = None


class _Piece(Struct, frozen=True):
    """Documents of one query."""

    start: int
    """Index of the first pair."""
    query: str
    documents: list[str]


_decode = reader_of(_Answer)


class ScoreCalls:
    """Requests scores from the replicas."""

    def __init__(self, dispatcher: Dispatcher, path: str) -> None:
        self._dispatcher = dispatcher
        self._path = path
        self._encode = msgspec.json.Encoder().encode

    async def score(self, request: ScoreRequest, fields: Mapping[str, Any]) -> ScoreResult:
        """Return all scores. `fields` are added to each call's body. Raises as `ScoringEngine.score` does."""
        scores = [0.0] * len(request.pairs)
        pieces = _pieces(request.pairs)
        tokens = 0

        async def work() -> None:
            nonlocal tokens
            for piece in pieces:
                answer = await self._call(request, fields, piece)
                scores[piece.start : piece.start + len(piece.documents)] = _read(answer, piece)
                told = answer.usage.tokens if answer.usage else 0
                texts = (piece.query * len(piece.documents), *piece.documents)
                tokens += told or estimated_tokens(texts)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_CALLS, len(request.pairs))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return ScoreResult(scores=scores, prompt_tokens=tokens)

    async def _call(
        self, request: ScoreRequest, fields: Mapping[str, Any], piece: _Piece
    ) -> _Answer:
        body = {"query": piece.query, "documents": piece.documents, **fields}
        headers = {"X-Request-Id": request.request_id, **(request.trace_headers or {})}
        encoded = self._encode(body)
        most = _ESCAPED * len(encoded) + _RESULT_BYTES * (len(piece.documents) + 1)
        said = await self._dispatcher.answer_to(self._path, encoded, headers, most_bytes=most)
        try:
            return _decode(said)
        except msgspec.DecodeError as error:
            raise EngineError("The engine's answer holds no scores.") from error


def _pieces(pairs: Sequence[TextPair]) -> Iterator[_Piece]:
    """The pairs in batches, each of successive pairs with the same query."""
    start = 0
    while start < len(pairs):
        query, end = pairs[start][0], start + 1
        while end < min(len(pairs), start + _PIECE) and pairs[end][0] == query:
            end += 1
        yield _Piece(start, query, [document for _, document in pairs[start:end]])
        start = end


def _read(answer: _Answer, piece: _Piece) -> list[float]:
    wanted = len(piece.documents)
    by_index = {each.index: each.relevance_score for each in answer.results}
    if sorted(by_index) != list(range(wanted)) or len(answer.results) != wanted:
        raise EngineError(f"The engine gave {len(answer.results)} scores for {wanted} documents.")
    return [by_index[index] for index in range(wanted)]
