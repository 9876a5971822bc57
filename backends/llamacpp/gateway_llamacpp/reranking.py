"""The reranking engine of llama.cpp."""

from __future__ import annotations

from functools import partial

import msgspec

from gateway.sdk import (
    Capability,
    EngineError,
    InvalidRequest,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
    TextPair,
)
from gateway.sdk.engines import ScoringOnly
from gateway_llamacpp.chunks import ErrorReply
from gateway_llamacpp.pooled import PooledEngine, ask
from gateway_llamacpp.worker import NativeServer, translated

_TOO_LONG = "too large to process"
"""How llama.cpp calls a text that does not fit into one computation. It reports this as an error of the server."""


class _Result(msgspec.Struct):
    relevance_score: float


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0


class _Reply(msgspec.Struct):
    results: list[_Result] = []
    usage: _Usage = _Usage()
    error: ErrorReply | None = None


class LlamaCppReranker(ScoringOnly, PooledEngine):
    """llama.cpp in process, for reranking. Implements `gateway.sdk.ScoringEngine`, and `Engine` without generation.

    llama.cpp combines the texts of a pair by the template `rerank` of the model's file, or by its special tokens.
    """

    capabilities: frozenset[Capability] = frozenset({"rerank"})

    @property
    def scoring(self) -> ScoringInfo:
        return ScoringInfo(max_input_tokens=self.info.max_model_len)

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Return all scores; see `ScoringEngine.score`."""
        self._alive()
        if request.adapter is not None:
            raise InvalidRequest("This model has no adapters.", param="model")
        lengths: dict[str, int] = {}
        jobs = [
            partial(self._score, pair, index, lengths) for index, pair in enumerate(request.pairs)
        ]
        replies = await self._run_all(jobs, request.priority)
        return ScoreResult(
            scores=[reply.results[0].relevance_score for reply in replies],
            prompt_tokens=sum(reply.usage.prompt_tokens for reply in replies),
        )

    def _score(
        self, pair: TextPair, index: int, lengths: dict[str, int], server: NativeServer
    ) -> _Reply:
        """Runs in a thread. `lengths` of the queries, in tokens, are counted once for all pairs."""
        query, document = pair
        try:
            if query not in lengths:
                lengths[query] = len(self.tokenizer.encode(query))
            self._check_length(lengths[query] + len(self.tokenizer.encode(document)))
            return score_pair(server, pair)
        except InvalidRequest as error:
            error.at = ("pairs", index)
            raise

    def _check_length(self, tokens: int) -> None:
        """llama.cpp computes pairs longer than a slot's share of the context, and ends the process on one without
        tokens."""
        if tokens == 0:
            raise InvalidRequest(
                "The model has no token for this pair of texts, so there is nothing to score.",
                code="invalid_value",
            )
        most = self.info.max_model_len
        if most is not None and tokens > most:
            raise InvalidRequest(
                f"The query and the document have {tokens} tokens together, and the model scores at most {most} at once. "
                "Shorten them.",
                code="context_length_exceeded",
            )


def score_pair(server: NativeServer, pair: TextPair) -> _Reply:
    """The score of one pair of texts. Raises `GatewayError`."""
    query, document = pair
    body = msgspec.json.encode({"query": query, "documents": [document]})
    reply = ask(server.handle_rerank, body, _Reply)
    if reply.error is not None:
        if _TOO_LONG in reply.error.message:
            raise InvalidRequest(reply.error.message, code="context_length_exceeded")
        raise translated(reply.error)
    if len(reply.results) != 1:
        raise EngineError("llama.cpp gave no score.")
    return reply
