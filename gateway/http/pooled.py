"""Answers that are not generated: embeddings and scores, from the first model that does not fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from litestar.types import ASGIApp

from gateway.answers.attempts import Attempts
from gateway.answers.run_scope import RunScope
from gateway.http.answers import PlainAnswer, json_answer
from gateway.models.served_model import ServedModel


class PooledRun(Protocol):
    """A prepared run that makes embeddings or scores."""

    scope: RunScope
    model: ServedModel


RunT = TypeVar("RunT", bound=PooledRun)


async def pooled_answer(
    attempts: Attempts[RunT], make: Callable[[RunT], Awaitable[object]]
) -> PlainAnswer:
    """The answer as JSON. `make` executes a run and returns a wire Struct. If the run's `scope.error` is then set, the
    next model is tried.

    Raises `GatewayError` for failures that are answered by an HTTP status.
    """
    with attempts:
        first = await attempts.begin()

    async def answer() -> ASGIApp:
        run = first
        while True:
            made = await make(run)
            error = run.scope.error
            if error is None:
                return json_answer(made, model=run.model.name)
            with attempts:
                run = await attempts.after(error)

    return PlainAnswer(first.scope, answer)
