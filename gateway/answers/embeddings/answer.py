"""Making an answer of the Embeddings API, from its inputs to its vectors."""

from __future__ import annotations

import asyncio
import binascii
import math
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from gateway.access.engine_priority import engine_priority
from gateway.answers.pooled_run import run_pooled
from gateway.answers.run_scope import RunScope
from gateway.base.errors import (
    EngineError,
    InvalidRequest,
    Unsupported,
    param_text,
)
from gateway.engines.vectors import bytes_of
from gateway.generation.error_params import EmbeddingParams
from gateway.generation.generator import CONTEXT_LENGTH_EXCEEDED
from gateway.generation.policies import policies_for
from gateway.generation.rendering import IN_THREAD
from gateway.generation.usage import ExpectedTokens
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    EmbeddingEngine,
    EmbeddingInfo,
    EmbeddingInput,
    EmbeddingRequest,
    EmbeddingResult,
    Tokenizer,
)
from gateway.services import Services
from gateway.wire.common import encode
from gateway.wire.embeddings import (
    Embedding,
    EmbeddingList,
    EmbeddingsRequest,
    EmbeddingUsage,
    EncodingFormat,
)
from gateway.wire.ids import new_id

T = TypeVar("T")

_ENCODED_AT_ONCE = 32
"""Number of vectors that are encoded before other tasks of the event loop may run."""


class EmbeddingRun:
    """A prepared answer. A failure of `run` or `vectors` does not raise; it is `scope.error`. They raise
    `CancelledError` if their task is cancelled."""

    def __init__(
        self,
        request: EmbeddingRequest,
        model: ServedModel,
        engine: EmbeddingEngine,
        services: Services,
        encoding: EncodingFormat,
        *,
        several: bool,
    ) -> None:
        """Reserves a place in the model's queue. Raises `RateLimited` if the queue is full."""
        self.services = services
        self.scope = RunScope(
            services, name="an embedding", api="embeddings", subject="The embeddings"
        )
        counted = (len(each) for each in request.inputs if not isinstance(each, str))
        self.scope.reserve(model, ExpectedTokens(prompt=sum(counted)))
        self._request = request
        self.model = model
        self._engine = engine
        self._encoding = encoding
        self._several = several

    async def run(self) -> EmbeddingList | None:
        """Return the whole answer; None if it failed."""
        with self.scope:
            return await self._run(self._answer)

    async def vectors(self) -> Sequence[array[float]] | None:
        """Return the vectors without encoding them; None if the request failed. Use this or `run`. A shutdown does not
        wait for this call; it waits for the run that made it."""
        return await self._run(self._checked_vectors)

    async def _run(self, make: Callable[[EmbeddingResult], Awaitable[T]]) -> T | None:
        async def checked(result: EmbeddingResult) -> T:
            self._check_number(result)
            return await make(result)

        def ask(trace_headers: Mapping[str, str] | None) -> Awaitable[EmbeddingResult]:
            request = self._request
            if trace_headers is not None:
                request = msgspec.structs.replace(request, trace_headers=trace_headers)
            return self._engine.embed(request)

        return await run_pooled(
            self.scope,
            model=self.model,
            ask=ask,
            make=checked,
            params=EmbeddingParams(several=self._several),
        )

    def _check_number(self, result: EmbeddingResult) -> None:
        wanted = len(self._request.inputs)
        if len(result.vectors) != wanted:
            raise EngineError(
                f"The engine gave {len(result.vectors)} vectors for {wanted} inputs. Retry."
            )

    async def _checked_vectors(self, result: EmbeddingResult) -> Sequence[array[float]]:
        for vector in result.vectors:
            _check_numbers(vector)
        return result.vectors

    async def _answer(self, result: EmbeddingResult) -> EmbeddingList:
        data: list[msgspec.Raw] = []
        for index, vector in enumerate(result.vectors):
            if index % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                await asyncio.sleep(0)
            _check_numbers(vector)
            shown = Embedding(index=index, embedding=_encoded(vector, self._encoding))
            data.append(msgspec.Raw(encode(shown)))
        tokens = result.prompt_tokens
        return EmbeddingList(
            data=data,
            model=self.model.name,
            usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens),
        )


def _check_numbers(vector: array[float]) -> None:
    if not vector or not math.isfinite(sum(vector)):
        raise EngineError("The engine gave a vector that is not made of numbers.")


def _encoded(vector: array[float], encoding: EncodingFormat) -> list[float] | str:
    if encoding == "float":
        return vector.tolist()
    return binascii.b2a_base64(bytes_of(vector), newline=False).decode()


async def prepare_embeddings(
    request: EmbeddingsRequest,
    services: Services,
    *,
    size: int,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
    owner: str | None = None,
) -> EmbeddingRun:
    """Prepare an answer by the model `model_name`, by default the model that the request names. Raises `GatewayError`
    for failures that are answered with an HTTP status.

    `size` is the size of the request body in bytes. It indicates how long tokenizing takes.
    """
    model, engine = services.lookup.embedding_model(model_name or request.model)
    info = engine.embedding
    _check_dimensions(request.dimensions, info, model.name)
    tokenizer = model.engine.tokenizer
    inputs: Sequence[EmbeddingInput] = request.inputs
    policies = policies_for(services.policies, api="embeddings", model=model.name, owner=owner)
    if policies is not None:
        inputs = await policies.inputs(inputs, tokenizer, "input")
    if tokenizer is not None:
        special = request.add_special_tokens is not False
        if size > IN_THREAD:
            inputs = await asyncio.to_thread(_tokenized, inputs, tokenizer, special=special)
        else:
            inputs = _tokenized(inputs, tokenizer, special=special)
        _check_lengths(inputs, info, several=request.several)
    elif request.add_special_tokens is not None:
        raise Unsupported(
            "The engine of this model tokenizes by its own rule. Leave add_special_tokens out.",
            param="add_special_tokens",
        )
    asked = EmbeddingRequest(
        request_id=new_id("emb_"),
        inputs=inputs,
        dimensions=request.dimensions,
        adapter=model.adapter,
        priority=engine_priority(model.engine, request.priority),
        user=request.user,
        trace_headers=trace_headers,
    )
    return EmbeddingRun(
        asked, model, engine, services, request.encoding_format, several=request.several
    )


def _tokenized(
    inputs: Sequence[EmbeddingInput], tokenizer: Tokenizer, *, special: bool
) -> list[EmbeddingInput]:
    return [
        tokenizer.encode(each, add_special_tokens=special) if isinstance(each, str) else each
        for each in inputs
    ]


def _check_lengths(inputs: Sequence[EmbeddingInput], info: EmbeddingInfo, *, several: bool) -> None:
    most, params = info.max_input_tokens, EmbeddingParams(several=several)
    for index, each in enumerate(inputs):
        param = params.renamed(("input", index))
        text = param_text(param)
        if not each:
            raise InvalidRequest(
                f"Invalid '{text}': the model has no token for this text, so there is nothing to embed.",
                param=param,
                code="invalid_value",
            )
        if most is not None and len(each) > most:
            raise InvalidRequest(
                f"Invalid '{text}': this input has {len(each)} tokens, and the model embeds at most {most} at once. "
                "Shorten it, or cut it in pieces.",
                param=param,
                code=CONTEXT_LENGTH_EXCEEDED,
            )


def _check_dimensions(wanted: int | None, info: EmbeddingInfo, model: str) -> None:
    whole, shorter = info.dimensions, info.shorter
    if wanted is None or wanted == whole or shorter is None:
        return
    if whole is not None and wanted > whole:
        raise InvalidRequest(
            f"Invalid 'dimensions': the vectors of '{model}' have {whole} numbers, and {wanted} were asked for.",
            param="dimensions",
            code="integer_above_max_value",
        )
    if shorter is False:
        has = "a fixed length" if whole is None else f"{whole} numbers"
        raise Unsupported(
            f"The vectors of '{model}' have {has}, and cannot be shortened. Leave dimensions out.",
            param="dimensions",
        )
    if shorter is not True and wanted not in shorter:
        raise InvalidRequest(
            f"Invalid 'dimensions': the vectors of '{model}' can have {', '.join(map(str, shorter))} numbers, and "
            f"{wanted} were asked for.",
            param="dimensions",
            code="invalid_value",
        )
