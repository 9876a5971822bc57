"""Calls `/v1/embeddings` of the replicas, with inputs split into batches."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.sdk import EmbeddingRequest, EmbeddingResult, EngineError, InvalidRequest
from gateway.sdk.engines import estimated_tokens, shortened, vector_of_json
from gateway_remote.dispatch import Dispatcher
from gateway_remote.reading import reader_of

_PIECE = 128
"""Inputs per call. Batches may go to different replicas."""
_CALLS = 8
"""Maximum number of concurrent calls per request."""


class _Vector(Struct):
    embedding: str | list[float]
    index: int


class _Usage(Struct):
    prompt_tokens: int = 0


class _Answer(Struct):
    data: list[_Vector]
    usage: _Usage | None = None


_decode = reader_of(_Answer)


class VectorCalls:
    """Requests vectors from the replicas."""

    def __init__(self, dispatcher: Dispatcher, path: str, *, cut_here: bool) -> None:
        """`cut_here`: the gateway shortens vectors to `dimensions`, and the servers are not told."""
        self._dispatcher = dispatcher
        self._path = path
        self._cut_here = cut_here
        self._encode = msgspec.json.Encoder().encode

    async def embed(self, request: EmbeddingRequest, fields: Mapping[str, Any]) -> EmbeddingResult:
        """Return all vectors. `fields` are added to each call's body. Raises as `EmbeddingEngine.embed` does."""
        total = len(request.inputs)
        vectors: list[array[float]] = [array("f")] * total
        starts = iter(range(0, total, _PIECE))
        tokens = 0

        async def work() -> None:
            nonlocal tokens
            for start in starts:
                answer = await self._call(request, fields, start)
                vectors[start : start + _PIECE] = self._read(answer, request, start)
                told = answer.usage.prompt_tokens if answer.usage else 0
                tokens += (
                    told if told > 0 else estimated_tokens(request.inputs[start : start + _PIECE])
                )

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_CALLS, -(-total // _PIECE))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return EmbeddingResult(vectors=vectors, prompt_tokens=tokens)

    async def _call(
        self, request: EmbeddingRequest, fields: Mapping[str, Any], start: int
    ) -> _Answer:
        body = {
            "input": request.inputs[start : start + _PIECE],
            "encoding_format": "base64",
            **fields,
        }
        if request.dimensions is not None and not self._cut_here:
            body["dimensions"] = request.dimensions
        headers = {"X-Request-Id": request.request_id, **(request.trace_headers or {})}
        said = await self._dispatcher.answer_to(self._path, self._encode(body), headers)
        try:
            return _decode(said)
        except msgspec.DecodeError as error:
            raise EngineError("The engine's answer holds no vectors.") from error

    def _read(self, answer: _Answer, request: EmbeddingRequest, start: int) -> list[array[float]]:
        wanted = len(request.inputs[start : start + _PIECE])
        by_index = {each.index: each.embedding for each in answer.data}
        if sorted(by_index) != list(range(wanted)) or len(answer.data) != wanted:
            raise EngineError(f"The engine gave {len(answer.data)} vectors for {wanted} inputs.")
        try:
            vectors = [vector_of_json(by_index[index]) for index in range(wanted)]
        except (ValueError, OverflowError) as error:
            raise EngineError("The engine gave a vector that cannot be read.") from error
        dimensions = request.dimensions
        if dimensions is not None and any(len(vector) < dimensions for vector in vectors):
            raise InvalidRequest(
                f"Invalid 'dimensions': the model's vectors have {min(map(len, vectors))} numbers, and {dimensions} were "
                "asked for.",
                param="dimensions",
                code="integer_above_max_value",
            )
        if self._cut_here:
            return [shortened(vector, dimensions) for vector in vectors]
        if dimensions is not None and any(len(vector) != dimensions for vector in vectors):
            raise InvalidRequest(
                "The engine of this model does not shorten vectors. Leave dimensions out.",
                param="dimensions",
                code="unsupported_parameter",
            )
        return vectors
