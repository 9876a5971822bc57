"""The stream and the plain answer of choices, as ASGI applications."""

from __future__ import annotations

from typing import Any

from litestar.types import ASGIApp

from gateway.errors import GatewayError
from gateway.loop.choices import ChoicesRun
from gateway.routes.answers import PlainAnswer, json_answer
from gateway.routes.stream_body import StreamBody
from gateway.routes.streaming import StreamedAnswer
from gateway.wire.event_frames import SSE_DONE
from gateway.wire.response import error_body


class ChunkStream(StreamedAnswer):
    """A run's chunks as server-sent events, ended by `[DONE]`.

    What fails before the first bytes are sent is an HTTP status; later, a chunk with the error.
    """

    def __init__(self, run: ChoicesRun[Any]) -> None:
        super().__init__(run.scope, run.services)
        self._run = run

    def model(self) -> str:
        return self._run.model.name

    def may_change(self) -> bool:
        return self._run.may_change

    async def make(self, body: StreamBody) -> bytes:
        rest = await self._run.run(body.write)
        if self._run.scope.error is not None:
            body.keep(rest)
            raise self._run.scope.error
        return rest + self._run.trailer() + SSE_DONE

    def fail(self, error: GatewayError) -> bytes:
        return failed(error)


def failed(error: GatewayError) -> bytes:
    """The end of a stream of chunks that has failed."""
    return b"data: %b\n\n" % error_body(error) + SSE_DONE


def plain_choices(run: ChoicesRun[Any]) -> PlainAnswer:
    """A run's whole answer as one JSON body."""

    async def make() -> ASGIApp:
        await run.run(_nothing_to_send)
        run.scope.raise_error()
        return json_answer(run.answer(), model=run.model.name)

    return PlainAnswer(run.scope, make)


async def _nothing_to_send(body: bytes) -> None:
    raise AssertionError("a plain answer is sent as a whole")
