"""The stream and the plain answer of choices, as ASGI applications."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from litestar.types import Receive, Scope, Send

from gateway.loop.choices import ChoicesRun
from gateway.loop.sinks import TAKEN
from gateway.routes.answers import (
    SSE_HEADERS,
    direct,
    error_answer,
    error_body,
    json_answer,
    while_connected,
)
from gateway.routes.chunks import OneWrite, Silence, chunk_writer
from gateway.wire.events import SSE_DONE


class ChunkStream:
    """A run's chunks as server-sent events, ended by `[DONE]`.

    What fails before the first chunk is an HTTP status; later, a chunk with the error.
    """

    def __init__(self, run: ChoicesRun) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        metrics = self._run.services.metrics
        metrics.stream_opened()
        try:
            await while_connected(receive, self._stream(scope, receive, send))
        finally:
            self._run.abandon()
            metrics.stream_closed()

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        run, send_body = self._run, direct(scope, send)
        begun = False
        silence = Silence()
        write_chunk: Callable[[bytes], bool] | None = None

        async def begin(body: bytes) -> None:
            nonlocal begun, write_chunk
            begun = True
            with OneWrite(send_body):
                await send(
                    {"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS]}
                )
                await send_body({"type": "http.response.body", "body": body, "more_body": True})
            write_chunk = chunk_writer(send_body, silence)

        def write(body: bytes) -> Awaitable[None]:
            if write_chunk is None:
                return begin(body)
            if write_chunk(body):
                return TAKEN
            return send_body({"type": "http.response.body", "body": body, "more_body": True})

        with silence.broken(
            lambda comment: write_chunk is not None and write_chunk(comment),
            run.services.config.server.ping_interval,
        ):
            rest = await run.run(write)
        error = run.error
        if error is None:
            rest += run.trailer()
        elif begun:
            rest = b"data: %b\n\n" % error_body(error)
        else:
            await error_answer(error)(scope, receive, send)
            return
        if not begun:
            await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS]})
        await send_body({"type": "http.response.body", "body": rest + SSE_DONE, "more_body": False})


class ChoicesAnswer:
    """A run's whole answer as one JSON body; an error's envelope and status where it failed."""

    def __init__(self, run: ChoicesRun) -> None:
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer() -> None:
            await self._run.run(_nothing_to_send)
            error = self._run.error
            made = json_answer(self._run.answer()) if error is None else error_answer(error)
            await made(scope, receive, send)

        try:
            await while_connected(receive, answer())
        finally:
            self._run.abandon()


async def _nothing_to_send(body: bytes) -> None:
    raise AssertionError("a plain answer is sent as a whole")
