"""Answers of engines that answer once: embeddings and scores, with the first model that can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from litestar.types import ASGIApp

from gateway.loop.attempts import Attempts
from gateway.loop.run_scope import RunScope
from gateway.routes.answers import PlainAnswer, json_answer
from gateway.runtime.served_model import ServedModel


class PooledRun(Protocol):
    """A prepared run."""

    scope: RunScope
    model: ServedModel


RunT = TypeVar("RunT", bound=PooledRun)


async def pooled_answer(
    attempts: Attempts[RunT], make: Callable[[RunT], Awaitable[object]]
) -> PlainAnswer:
    """The answer as JSON. `make` runs, and returns a wire Struct; if `scope.error` is set then, the next model is tried.

    Raises `GatewayError` for failures that are answered by an HTTP status.
    """
    async with attempts:
        first = await attempts.begin()

    async def answer() -> ASGIApp:
        run = first
        while True:
            made = await make(run)
            error = run.scope.error
            if error is None:
                return json_answer(made, model=run.model.name)
            async with attempts:
                run = await attempts.after(error)

    return PlainAnswer(first.scope, answer)
