"""The run of one response: the models that are tried, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gateway.errors import GatewayError, ServerShuttingDown, StoreUnavailable
from gateway.loop.attempts import Attempts
from gateway.loop.run_scope import RunScope
from gateway.loop.sinks import MAX_HELD_SECONDS, HeldSink
from gateway.loop.timings import answer_times
from gateway.protocols import StoredResponse
from gateway.responses.ending import failure_code
from gateway.responses.plan import Plan
from gateway.responses.storage import RunStorage
from gateway.responses.turns import EventSink
from gateway.responses.work import OPENING, ResponseWork
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire.events import Event
from gateway.wire.response import Response, ResponseStatus, Usage

logger = logging.getLogger("gateway.responses.run")


class ResponseRun:
    """One response, from a plan to its terminal event.

    `prepare` refuses what cannot be run, before anything is sent. `run` never raises but for the cancellation of its
    task: whatever fails becomes the terminal event, after which nothing follows.
    """

    def __init__(
        self,
        plan: Plan,
        services: Services,
        *,
        quiet: bool = False,
        attempts: Attempts[Plan] | None = None,
    ) -> None:
        """`quiet`: build items without events, because none are sent. `attempts`: the models to try next if that of
        `plan` does not answer."""
        self.services = services
        self.scope = RunScope(
            services, name=f"response {plan.response.id}", api="responses", shows_cancelled=True
        )
        self.scope.stats.response_id = plan.response.id
        self.storage = RunStorage(services, self.scope)
        self._quiet = quiet
        self._attempts = attempts
        self.count_events: Callable[[], int] = lambda: 0
        """The number of events of a background response that clients may have seen."""
        self.handed_over = False
        """Whether the process is stopped, and another one is to run this background response again."""
        self.head_sent = False
        """Whether the HTTP status was sent. Later failures are sent as events."""
        self._held: HeldSink[Sequence[Event]] | None = None
        """The sink of the current attempt, if another model may still answer."""
        self._unsent: Sequence[Event] = ()
        """Events that are not sent yet because a later step may still fail. They are sent before the terminal event."""
        self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        """Begin the response by `plan`."""
        self.plan = plan
        self.model: ServedModel = plan.model
        self.response: Response = plan.response
        self._work = ResponseWork(plan, self.services, self.scope, quiet=self._quiet)

    async def _begin_anew(self, error: Exception) -> None:
        """Begin the response with the next model, since the last one has failed with `error`. Raises that if none is
        left."""
        try:
            if self._attempts is None:
                raise error
            plan = await self._attempts.after(error)
        finally:
            del error  # it refers to this frame, if it is raised here
        before = self.plan
        plan.response.id = before.response.id
        plan.response.created_at = before.response.created_at
        plan.input, plan.body, plan.kept_body = before.input, before.body, before.kept_body
        self._begin(plan)

    @property
    def may_change(self) -> bool:
        """Whether another model is left, which may answer as long as there is no output."""
        return self._attempts is not None and self._attempts.more

    @property
    def refused(self) -> bool:
        """Whether the response has ended before any event was handed out: its error is the whole answer."""
        held = self._held
        return (
            held is not None
            and not held.released
            and not self.head_sent
            and not self.plan.background
            and self.scope.error is not None
        )

    async def prepare(self) -> None:
        """Make the first prompt and let the engine check it. Raises `GatewayError` for failures that are answered by an HTTP status."""
        while True:
            try:
                await self._prepare()
            except GatewayError as error:
                if self.scope.denied:
                    raise
                await self._begin_anew(error)
            else:
                return

    async def _prepare(self) -> None:
        expected = await self._work.prepare()
        if self.plan.store and self.services.store is not None:
            await self.services.store.health()
        self.scope.reserve(self.model, expected)
        try:
            await self.scope.admit()
        except BaseException:
            self.scope.abandon()
            raise

    def record(self) -> StoredResponse:
        """The response as it is now, as it is stored."""
        return self.storage.record(self._work)

    async def run(self, sink: EventSink) -> Response:
        """Make the response, handing its events to `sink`; returns it in its terminal status."""
        scope = self.scope
        closing: list[Event] | None = None
        try:
            with scope.registered():
                try:
                    with scope.stoppable():
                        closing = await self._answer(sink)
                except asyncio.CancelledError:
                    self._work.assembler.cancel(self._work.usage)
                    await self._keep_unread()
                    raise
                if closing is None:
                    if self._may_be_handed_over:
                        self.handed_over = True
                        return self.response
                    closing = self._ended_early(sink)
                if self.plan.shows_times:
                    times = answer_times(scope.stats, self._work.usage)
                    self.response.timings, self.response.metrics = times
                try:
                    stored = await self.storage.end(self._work)
                except asyncio.CancelledError:
                    if (
                        not self.plan.background
                    ):  # or another process stores it, when the lease expires
                        await self._keep_unread()
                    raise
                if stored:
                    self._notify_plugins()
                    if not self.refused:
                        if self._held is not None:
                            await self._held.release()
                        if not self._quiet:
                            await sink([*self._unsent, *closing, self._work.assembler.terminal()])
                else:  # deleted, or ended by another process: what was made counts all the same
                    self._finish_unstored(self.response.status, self.response.usage)
        except StoreUnavailable as error:
            scope.error = error  # of a background response: another process ends it
            raise
        finally:
            if not scope.is_finished:  # it could not be stored; what was made counts all the same
                cancelled = self.handed_over or self.response.status == "cancelled"
                self._finish_unstored("cancelled" if cancelled else "failed", self._work.usage)
        return self.response

    def _finish_unstored(self, status: ResponseStatus, usage: Usage | None) -> None:
        """Report the end of a run whose end is not stored. One that may be run again is counted as a request by who runs it."""
        self.scope.finish(status, usage, is_request=self.plan.body is None and not self.handed_over)

    @property
    def _may_be_handed_over(self) -> bool:
        """Whether a stop has ended a background response that can be run again."""
        return (
            isinstance(self.scope.error, ServerShuttingDown)
            and self.plan.kept_body is not None
            and self.services.store is not None
            and self.services.store.lasting
            and not self._work.has_called_tools
            and self.count_events() <= OPENING
        )

    async def _keep_unread(self) -> None:
        """The client has gone: nobody reads on, but what was made is kept, and counts. It may have been stored before."""
        await asyncio.shield(self.storage.end(self._work))
        self._notify_plugins()

    def _ended_early(self, sink: EventSink) -> list[Event]:
        """The events that close a response which something has ended, but for the terminal one."""
        assembler, error = self._work.assembler, self.scope.error
        if error is None:
            return assembler.cancel(self._work.usage)
        opening: Sequence[Event] = ()
        if not assembler.started:  # the next model was not even asked
            opening = self._open_anew(sink)
        return [*opening, *assembler.fail(failure_code(error), error.message, self._work.usage)]

    def _open_anew(self, sink: EventSink) -> Sequence[Event]:
        """Start a response that ends before it was. Returns the events for clients that have none of the attempts before."""
        if self.plan.background:
            self._work.assembler.resume(OPENING)
            return ()
        self._held = HeldSink(sink)  # without the events of the attempt before
        return self._work.assembler.start()

    def _answer(self, sink: EventSink) -> Coroutine[Any, Any, list[Event]]:
        """Run all turns with the first model that gives any output."""
        attempts = self._attempts
        if attempts is not None and attempts.more:
            return self._any_attempt(attempts, sink)
        self._attempts = None  # and with them the request
        if self._quiet or self.plan.background or not self._work.may_be_refused:
            return self._do_work(sink, sink)
        return self._held_attempt(sink)

    async def _any_attempt(self, attempts: Attempts[Plan], sink: EventSink) -> list[Event]:
        """Run all turns with the model of the plan, or else with the next one."""
        resumed = False
        while True:
            held = self._held = HeldSink(sink)
            try:
                closing = await self._do_work(sink, held, resumed=resumed)
            except Exception as error:
                if held.released or self.scope.denied:
                    raise
                usage = self._work.usage
                attempts.check(error)
                self.scope.attempt_failed(error, usage)
                async with attempts:
                    await self._begin_anew(error)
                    await self.prepare()
                resumed = self.plan.background
            else:
                await held.release()
                return closing

    async def _held_attempt(self, sink: EventSink) -> list[Event]:
        """Run all turns with the model of the plan, which may still refuse the request: the start of the stream waits for
        its first output."""
        held = self._held = HeldSink(sink)
        seconds = self.services.config.server.ping_interval or MAX_HELD_SECONDS
        with held.released_after(min(seconds, MAX_HELD_SECONDS)):
            closing = await self._do_work(sink, held)
            await held.release()
        return closing

    def _do_work(
        self, common: EventSink, sink: EventSink, *, resumed: bool = False
    ) -> Coroutine[Any, Any, list[Event]]:
        """Run all turns with the model of the plan. See `ResponseWork.run`."""
        leave_queue = self._leave_queue if self.plan.background else None
        return self._work.run(common, sink, resumed=resumed, leave_queue=leave_queue)

    async def _leave_queue(self, sink: EventSink) -> bool:
        """A background response begins to run. False: it has been ended from elsewhere, and does not."""
        self._unsent = self._work.assembler.progress()
        if not await self.storage.begin(self._work):
            return False
        events, self._unsent = self._unsent, ()
        await sink(events)
        return True

    def _notify_plugins(self) -> None:
        response = self.response
        self.scope.finish(response.status, response.usage)
        hook = self.services.hook.gateway_response_finished
        if not hook.get_hookimpls():
            return
        try:
            hook(response=response)
        except Exception:
            # An observer's failure must not become the client's.
            logger.exception("a gateway_response_finished hook failed")
