"""Answers of the Responses API other than a stream of new events: final responses, and the events of a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from litestar.types import ASGIApp

from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.live_log import LiveLog
from gateway.base.errors import GatewayError, StoreUnavailable
from gateway.generation.sinks import ACCEPTED
from gateway.http.answers import PlainAnswer, json_answer
from gateway.http.stream_body import StreamBody
from gateway.http.streaming import StreamedAnswer
from gateway.plugins.protocols import UNFINISHED, StoredResponse
from gateway.services import Services
from gateway.wire.event_frames import SSE_DONE, ends_stream, sse_frame, sse_frame_of
from gateway.wire.events import ErrorEvent, Event
from gateway.wire.response import Response

STORE_RETRY_SECONDS = 0.5
"""Seconds that a stream waits before it tries an unavailable store again."""


class LogStream(StreamedAnswer):
    """A background response's event log as server-sent events: the logged events, and then further ones up to the last.

    If the log breaks off, the stream ends with the event `error`. This happens if the response was deleted, or if the
    store has lost it or stays unavailable.
    """

    is_resumed_often = True

    def __init__(
        self,
        services: Services,
        record: StoredResponse,
        *,
        after: int = -1,
        live: LiveLog | None = None,
    ) -> None:
        """`live` receives the events of the response, if it runs in this process."""
        super().__init__(None, services)
        self._response_id, self._owner = record.id, record.owner
        self._live = live
        self._at = max(after, -1)
        """Sequence number of the last event that was sent; -1 if there was none."""
        self._ended = False
        """Whether the terminal event was sent."""

    async def make(self, body: StreamBody) -> bytes:
        """Send all events, to the log's end."""
        write_chunk = await body.open()  # now, because the next event may come late
        live, complete = self._live, False
        lost: ErrorEvent | None = None
        if live is not None:
            await self._copy(body, until=live)
            follower = await live.follow(self._at, write_chunk)
            self._at, complete = follower.at, follower.complete
        clock = asyncio.get_running_loop().time
        since: float | None = None
        while not complete:
            at = self._at
            try:
                await self._copy(body)
                lost = await self._loss()
                complete = True
            except StoreUnavailable:
                if since is None or self._at > at:
                    since = clock()
                left = since + self._services.config.server.store_wait - clock()
                if live is None or left <= 0:
                    raise
                # The end of the followed log is in the store, which may become available again.
                await asyncio.sleep(min(left, STORE_RETRY_SECONDS))
        return SSE_DONE if lost is None else sse_frame(lost) + SSE_DONE

    def fail(self, error: GatewayError) -> bytes:
        failure = ErrorEvent(
            sequence_number=self._at + 1,
            code=error.code or error.type,
            message=error.message,
            param=error.param,
        )
        return sse_frame(failure) + SSE_DONE

    async def _loss(self) -> ErrorEvent | None:
        """The event that reports why the log broke off; None if it was sent completely."""
        if self._ended:
            return None
        store = self._services.store
        assert store is not None, "only what is stored has a log"
        record = await store.get(self._response_id, owner=self._owner)
        if record is None:
            return ErrorEvent(
                sequence_number=self._at + 1,
                code="response_not_found",
                message="The response is no longer stored: it was deleted, or the store has lost it.",
            )
        if (
            record.response.status not in UNFINISHED
            and await store.count_events(record.id) <= self._at + 1
        ):
            return None  # the client has requested events after the last one
        return ErrorEvent(
            sequence_number=self._at + 1,
            code="server_error",
            message="The store has lost events of this response. Retrieve it without stream.",
        )

    async def _copy(self, body: StreamBody, *, until: LiveLog | None = None) -> None:
        """Send the stored events after the last sent one: all of them, or only the events that `until` has counted."""
        store = self._services.store
        assert store is not None, "only what is stored has a log"
        if until is not None and until.count <= self._at + 1:
            return
        async with aclosing(store.read_events(self._response_id, after=self._at)) as batches:
            async for batch in batches:
                self._at += len(batch)
                self._ended = ends_stream(batch[-1])
                await body.write(b"".join(map(sse_frame_of, batch)))
                if until is not None and until.count <= self._at + 1:
                    return


def final_response(
    run: ResponseAnswer, *, shown: Callable[[Response], object] | None = None
) -> PlainAnswer:
    """The final response of `run` as one JSON body. `shown` converts the response to the body; by default, the body is
    the response itself. It may raise `GatewayError`."""

    async def make() -> ASGIApp:
        await run.run(_discard)
        run.scope.raise_error()
        response = run.output.response
        return json_answer(response if shown is None else shown(response), model=run.model.name)

    return PlainAnswer(run.scope, make)


def _discard(events: Sequence[Event]) -> Awaitable[None]:
    """Discard events, because only the final response is sent."""
    return ACCEPTED
