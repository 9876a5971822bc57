"""The unstreamed answer of Chat Completions and Completions, as an ASGI application."""

from __future__ import annotations

from typing import Any, TypeVar

from litestar.types import ASGIApp

from gateway.answers.answer import Answer
from gateway.answers.chat.output import ChatOutput
from gateway.answers.completions.output import CompletionOutput
from gateway.http.answers import PlainAnswer, json_answer

OutputT = TypeVar("OutputT", ChatOutput, CompletionOutput)


def plain_choices(answer: Answer[Any, bytes, OutputT]) -> PlainAnswer:
    """The whole answer as one JSON body."""

    async def make() -> ASGIApp:
        await answer.run(_nothing_to_send)
        answer.scope.raise_error()
        return json_answer(answer.output.answer(), model=answer.model.name)

    return PlainAnswer(answer.scope, make)


async def _nothing_to_send(body: bytes) -> None:
    raise AssertionError("a plain answer is sent as a whole")
