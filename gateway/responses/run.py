"""One response: its turns run, its events are told, its end is stored."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeAlias, cast

from gateway.deltas import Delta
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    RateLimited,
    StoreUnavailable,
    too_long,
)
from gateway.loop.faults import Places, tool_places
from gateway.loop.generation import Generation, GenerationSettings, Generator
from gateway.loop.logprobs import LogprobAligner
from gateway.loop.turns import TurnLoop
from gateway.loop.usage import total
from gateway.protocols import UNFINISHED, FinishReason, StoredResponse, Turn
from gateway.responses.assembler import ResponseAssembler
from gateway.responses.context_management import Compactor
from gateway.responses.plan import Plan
from gateway.serving.admission import Reservation
from gateway.serving.served import ServedModel, Services
from gateway.tools.calls import ToolCalls
from gateway.wire.events import Event
from gateway.wire.ids import new_id
from gateway.wire.response import Response, Usage, snapshot

logger = logging.getLogger("gateway.responses.run")

Sink = Callable[[Sequence[Event]], Awaitable[None]]
"""Takes the events that are ready at once; awaiting it is the back-pressure."""
Ready: TypeAlias = Sequence[Event] | bytes
"""Events; or one event, as it is sent in a stream of server-sent events."""
FrameSink = Callable[[Ready], Awaitable[None]]

KEPT_IN_CONVERSATION = ("completed", "incomplete")
"""What a conversation goes on with: a response that failed or was cancelled leaves no trace in it."""


class ResponseRun:
    """One response, from a plan to its terminal event.

    `prepare` refuses what cannot be run, before anything is sent. `run` never raises but for the cancellation of its
    task: whatever fails becomes the terminal event, after which nothing follows.
    """

    def __init__(self, plan: Plan, services: Services, *, quiet: bool = False) -> None:
        """`quiet`: nobody reads the events on the way; the sink is given few of them."""
        self.plan = plan
        self.model: ServedModel = plan.model
        self.services = services
        self.response: Response = plan.response
        self.attempt = 0
        """See `StoredResponse`."""
        self.error: GatewayError | None = None
        """Why the response failed, once it has."""
        aligner = LogprobAligner() if plan.wants_logprobs else None
        self._assembler = ResponseAssembler(
            plan.response,
            roles=plan.toolset.roles,
            new_id=new_id,
            clock=time.time,
            aligner=aligner,
            seal=partial(services.sealer.seal, owner=plan.owner) if plan.seals_reasoning else None,
            include=plan.include,
            known=plan.turn.results,
            summarizes=plan.summarizes_reasoning,
            quiet=quiet,
        )
        self._first: Generation | None = None
        self._reservation: Reservation | None = None
        settings = GenerationSettings(
            sampling=plan.sampling,
            cache_salt=plan.cache_salt,
            priority=plan.priority,
            trace_headers=plan.trace_headers,
            hints=plan.hints,
            size=plan.size,
            places=Places(tools=tool_places(plan.response.tools)),
        )
        self._generator = Generator(
            plan.model,
            settings,
            services.metrics,
            aligner=aligner,
            observe=None if aligner is None else aligner.push,
        )
        self._compactor: Compactor | None = None
        if plan.compaction is not None:
            self._compactor = Compactor(
                plan.compaction,
                plan.model,
                settings,
                services.metrics,
                truncate=plan.truncate,
            )
        self._task: asyncio.Task[object] | None = None
        self._stopped_by: GatewayError | None = None
        self._cancelled = False
        self._taken = False
        """Whether somebody else has ended the response, or runs it, since it was queued."""
        self._untold: Sequence[Event] = ()
        """Events that are made, and wait for something else that may fail: they come before what closes then."""

    async def prepare(self) -> None:
        """Make the first prompt and let the engine look at it: raises what a client must be told by HTTP status."""
        with self.plan.faults_told():
            self._first = await self._first_generation()
        if self.plan.store and self.services.store is not None:
            await self.services.store.health()
        self._reservation = self.model.admission.reserve()

    async def _first_generation(self) -> Generation | None:
        """None where a compaction comes before."""
        if self._compactor is not None:
            return await self._compactor.begin(self._generator, self.plan.turn)
        return await self._generator.fitting(self.plan.turn, truncate=self.plan.truncate)

    def abandon(self) -> None:
        """Give back what `prepare` took, if `run` was never called."""
        if self._reservation is not None:
            self._reservation.cancel()

    def stop(self, error: GatewayError) -> None:
        """End the run from outside: it fails with `error`, keeping what was written."""
        if self._task is not None and self._stopped_by is None:
            self._stopped_by = error
            self._task.cancel()

    def cancel(self) -> None:
        """End the run as cancelled, keeping what was written. Does nothing once it has ended, or twice."""
        if not self._cancelled and self._stopped_by is None:
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

    def record(self) -> StoredResponse:
        """The response as it is now, as it is stored."""
        plan = self.plan
        return StoredResponse(
            response=snapshot(self.response),
            input=plan.input,
            previous_response_id=plan.previous_response_id,
            conversation_id=plan.conversation_id,
            owner=plan.owner,
            streamed=plan.background and plan.stream,
            request=plan.body,
            attempt=self.attempt,
            results=dict(self._assembler.results),
        )

    async def run(self, sink: Sink) -> Response:
        """Make the response, handing its events to `sink`; returns it in its terminal status."""
        # `feed` makes nothing but events.
        return await self._run(cast("FrameSink", sink), self._assembler.feed)

    async def run_framed(self, sink: FrameSink) -> Response:
        """As `run`, for server-sent events: most of them come as they are sent."""
        return await self._run(sink, self._assembler.feed_framed)

    async def _run(self, sink: FrameSink, write: Callable[[Sequence[Delta]], Ready]) -> Response:
        self._task = asyncio.current_task()
        self.services.runs.add(self)
        try:
            closing = await self._until_end(sink, write)
            self._task = None  # from here on there is nothing to stop
            if await self._store():
                self._tell_plugins()
                await sink([*self._untold, *closing, self._assembler.terminal()])
        finally:
            self._task = None
            self.abandon()
            self.services.runs.discard(self)
        return self.response

    async def _until_end(
        self, sink: FrameSink, write: Callable[[Sequence[Delta]], Ready]
    ) -> list[Event]:
        """Run all turns; the events that close the response, but for the terminal one."""
        assembler, reservation = self._assembler, self._reservation
        first, self._first = self._first, None
        assert reservation is not None, "prepare comes before run"
        error: GatewayError
        deadline = asyncio.get_running_loop().call_later(
            self.services.settings.request_timeout, self._expire
        )
        try:
            await sink(assembler.start("queued" if self.plan.background else "in_progress"))
            if self._cancelled:
                return assembler.cancel(self._usage())
            async with reservation, AsyncExitStack() as sessions:
                if self.plan.background:
                    await self._leave_queue(sink)
                if first is None:
                    first = await self._compact(sink)
                for listing in self.plan.listings if first is not None else ():
                    await sink(assembler.list_tools(listing))
                if self.plan.generates and first is not None:
                    turns = self._turns(write)
                    await turns.run(first, sink, sessions, approved=self.plan.approved)
            return assembler.finish(self._usage())
        except GatewayError as failure:
            error = failure
        except asyncio.CancelledError:
            if self._task is not None and (self._cancelled or self._stopped_by is not None):
                self._task.uncancel()
            if self._cancelled:
                return assembler.cancel(self._usage())
            if self._stopped_by is None:
                assembler.cancel(self._usage())
                # The client has gone: nobody reads on, but what was made is kept.
                await asyncio.shield(self._store())
                self._tell_plugins()
                raise
            error = self._stopped_by
        except Exception:
            # A plugin or the gateway itself is at fault; the client is told that, the log is told what.
            logger.exception("response %s failed", self.response.id)
            error = GatewayError("The server had an internal error on this request.")
        finally:
            deadline.cancel()
        self.error = error
        return assembler.fail(failure_code(error), error.message, self._usage())

    async def _compact(self, sink: FrameSink) -> Generation | None:
        """The first generation from what was compacted; None where the response is over with that."""
        compactor = self._compactor
        assert compactor is not None, "prepare comes before run"
        seal = partial(self.services.sealer.seal, owner=self.plan.owner)
        return await compactor.run(self._assembler, self._generator, sink, seal)

    async def _compacted_where_needed(self, turn: Turn, sink: FrameSink) -> Generation:
        """A later generation, from `turn` or from a summary of it."""
        assert self._compactor is not None, "who asks has looked"
        generation = await self._compactor.begin(self._generator, turn)
        generation = generation or await self._compact(sink)
        assert generation is not None, "a trigger is followed by none"
        return generation

    def _usage(self) -> Usage:
        """So far; a compaction is a part of it."""
        counts = [self._generator.tokens]
        if self._compactor is not None:
            counts.append(self._compactor.tokens)
        return total(counts).usage()

    def _turns(self, write: Callable[[Sequence[Delta]], Ready]) -> TurnLoop[Ready]:
        # Not kept: it refers back to this object, which would then stay until the garbage collector comes for both.
        plan = self.plan
        calls = ToolCalls(
            plan.response.id,
            plan.toolset.served,
            known=plan.turn.results,
            max_calls=plan.max_tool_calls,
            max_parallel=self.services.settings.max_parallel_tool_calls,
            metrics=self.services.metrics,
        )
        return TurnLoop(
            self._generator,
            self._assembler,
            calls,
            write=write,
            end=self._end_output,
            show=_as_they_are,
            prepare=None if self._compactor is None else self._compacted_where_needed,
        )

    def _expire(self) -> None:
        self.stop(too_long(self.services.settings.request_timeout))

    async def _leave_queue(self, sink: FrameSink) -> None:
        """A background response begins to run; where it has been ended from elsewhere, it does not."""
        self._untold = self._assembler.progress()
        store = self.services.store
        if store is not None and not await store.advance(self.record(), expected={"queued"}):
            self._cancelled = self._taken = True
            raise asyncio.CancelledError
        events, self._untold = self._untold, ()
        await sink(events)

    def _end_output(self, held: Sequence[Delta], reason: FinishReason) -> list[Event]:
        return [*self._assembler.feed(held), *self._assembler.end_generation(reason)]

    async def _store(self) -> bool:
        """Keep the response, before anybody is told that it has ended. False: somebody else has ended it already.

        A foreground response that cannot be stored has failed: completed means kept.
        """
        store, plan = self.services.store, self.plan
        if self._taken:
            return False
        if store is None or not plan.store:
            return True
        try:
            if not plan.background:
                await store.put(self.record())
            elif not await store.advance(self.record(), expected=UNFINISHED):
                return False
            if plan.conversation_id is not None and self.response.status in KEPT_IN_CONVERSATION:
                await store.append_items(
                    plan.conversation_id, [*plan.input, *self.response.output], owner=plan.owner
                )
        except StoreUnavailable as error:
            if plan.background:
                raise
            logger.warning("response %s could not be stored: %s", self.response.id, error.message)
            self.error = error
            self._assembler.spoil(failure_code(error), f"Not stored: {error.message}")
        return True

    def _tell_plugins(self) -> None:
        response = self.response
        self.services.metrics.run_finished(self.model.name, response.status, response.usage)
        try:
            self.services.hook.gateway_response_finished(response=self.response)
        except Exception:
            # An observer's failure must not become the client's.
            logger.exception("a gateway_response_finished hook failed")


def failure_code(error: GatewayError) -> str:
    """The `error.code` of a failed response, out of those that the API knows (`ResponseError.code`)."""
    match error:
        case RateLimited():
            return "rate_limit_exceeded"
        case InvalidRequest():
            return "invalid_prompt"
        case _:
            return "server_error"


def _as_they_are(events: Sequence[Event]) -> Sequence[Event]:
    return events
