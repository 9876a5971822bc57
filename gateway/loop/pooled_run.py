"""The work of a run whose engine answers once: embeddings and scores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from gateway.errors import ParamPath, renamed_params
from gateway.loop.run_scope import RunScope
from gateway.wire.response import ResponseStatus, Usage


class PooledResult(Protocol):
    """What such engines return."""

    @property
    def prompt_tokens(self) -> int: ...


R = TypeVar("R", bound=PooledResult)
T = TypeVar("T")


async def run_pooled(
    scope: RunScope,
    *,
    ask: Callable[[], Awaitable[R]],
    make: Callable[[R], Awaitable[T]],
    rename: Callable[[ParamPath], ParamPath],
) -> T | None:
    """Wait for the turn in the queue, `ask` the engine and `make` the answer; None if that failed.

    Raises nothing but the cancellation of its task: what fails is `scope.error`, with parameters named by `rename`.
    """
    made: T | None = None
    status: ResponseStatus = "cancelled"
    usage: Usage | None = None
    try:
        with scope.stoppable():
            async with scope.turn:
                with renamed_params(rename):
                    result = await ask()
            made = await make(result)
            tokens = result.prompt_tokens
            usage = Usage(input_tokens=tokens, output_tokens=0, total_tokens=tokens)
        status = "completed" if scope.error is None else "failed"
        return made
    finally:
        scope.finish(status, usage)
