"""Running requests that the engine answers with one result: embeddings and scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from gateway.answers.run_scope import RunScope
from gateway.base.errors import RenamedParams
from gateway.generation.span_attributes import pooled_attributes, span_name
from gateway.models.served_model import ServedModel
from gateway.observe.run_stats import RunStats
from gateway.wire.response import ResponseStatus, Usage


class PooledResult(Protocol):
    """The result of an embedding or scoring engine."""

    @property
    def prompt_tokens(self) -> int: ...


R = TypeVar("R", bound=PooledResult)
T = TypeVar("T")
TraceHeaders: TypeAlias = Mapping[str, str] | None


async def run_pooled(
    scope: RunScope,
    *,
    model: ServedModel,
    ask: Callable[[TraceHeaders], Awaitable[R]],
    make: Callable[[R], Awaitable[T]],
    params: RenamedParams,
) -> T | None:
    """Wait in the queue, call the engine with `ask`, and make the answer with `make`. Returns the answer, or None if it
    failed.

    `ask` receives the headers of its trace span, or None if the request is not traced. A failure does not raise; it is
    `scope.error`, with parameters renamed by `params`. Raises `CancelledError` if its task is cancelled.
    """
    made: T | None = None
    status: ResponseStatus = "cancelled"
    usage: Usage | None = None
    try:
        with scope.stoppable():
            async with scope.slot:
                with params:
                    result = await _traced(scope.stats, model, ask)
            made = await make(result)
            tokens = result.prompt_tokens
            usage = Usage(input_tokens=tokens, output_tokens=0, total_tokens=tokens)
        if scope.error is None:
            status = "completed"
        elif not scope.revoked:
            status = "failed"
        return made
    finally:
        scope.finish(status, usage)


async def _traced(
    stats: RunStats, model: ServedModel, ask: Callable[[TraceHeaders], Awaitable[R]]
) -> R:
    """Call `ask` within a span, if the request is traced."""
    if stats.span is None:
        return await ask(None)
    span = stats.span.child(span_name(stats.api, model), kind="client")
    tokens: int | None = None
    try:
        result = await ask(span.headers)
        tokens = result.prompt_tokens
        return result
    finally:
        error = None if tokens is not None else "unfinished"
        span.end(pooled_attributes(stats, model, tokens), error=error)
