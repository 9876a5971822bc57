"""One answer, from its plan to its end: the models that are tried, the queue, the deadline, and what ends it early.

Each API's answers are an `Output`, which an `Answer` drives: Responses, Chat Completions, Completions, and those of plugins.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from gateway.errors import GatewayError, StoreUnavailable
from gateway.loop.attempts import Attempts
from gateway.loop.run_scope import RunScope
from gateway.loop.sinks import MAX_HELD_SECONDS, HeldSink
from gateway.loop.usage import ExpectedTokens
from gateway.loop.writers import Sink
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire.response import ResponseStatus, Usage

PlanT = TypeVar("PlanT")
OutT = TypeVar("OutT")
OutputT = TypeVar("OutputT", bound="Output[Any]")


class Output(ABC, Generic[OutT]):
    """What an API makes of an answer, by the model of one plan. Another model has another output.

    Its methods are called in this order: `prepare`; `start`, `begin`, `make` and `finish`, which `fail` or `cancel` may replace at any
    point; `keep`; `terminal`, if it was kept; `report`. What they return is for the sink, or else is left to be sent.
    """

    model: ServedModel
    params: AbstractContextManager[None]
    """A context in which errors name the parameters of the request."""

    def __init__(self) -> None:
        self.status: ResponseStatus = "in_progress"
        self.follows = False
        """Whether it takes the place of the output of another model, which has started."""
        self.in_background = False
        """Whether no client waits for it. What `start` returns is then not held back, because each attempt has the same."""

    @property
    def counts_as_request(self) -> bool:
        """Whether its usage is that of a request, if it was not kept."""
        return True

    @abstractmethod
    async def prepare(self) -> ExpectedTokens:
        """Make the first prompt and let the engine check it. Returns what the answer may use. Raises `GatewayError` for failures
        that are answered by an HTTP status."""

    @property
    @abstractmethod
    def began(self) -> bool:
        """Whether the answer cannot be begun again by another model."""

    @property
    @abstractmethod
    def holds(self) -> bool:
        """Whether the engine may still refuse the request, so that nothing is sent before its first output."""

    @abstractmethod
    def usage(self) -> Usage:
        """What was used so far."""

    @abstractmethod
    def start(self) -> OutT:
        """Start the answer. Returns what is sent before its turn in the queue."""

    async def begin(self, sink: Sink[OutT]) -> bool:
        """Begin the work, when the turn has come. Returns False if the answer was ended from elsewhere."""
        return True

    @abstractmethod
    async def make(self, sink: Sink[OutT]) -> OutT:
        """Make the whole answer. Returns the last of it. Raises what fails."""

    @abstractmethod
    def finish(self, rest: OutT) -> OutT:
        """End the answer well. Returns `rest`, which is left of `make`, and what follows it."""

    @abstractmethod
    def fail(self, error: GatewayError) -> OutT:
        """End the answer with an error. Returns what is left of it."""

    @abstractmethod
    def cancel(self) -> OutT:
        """End the answer as cancelled. Returns what is left of it."""

    async def keep(self, scope: RunScope) -> bool:
        """Store the answer, which has ended, before its end is sent. Returns False if its end is not for this process to tell. An
        answer that has to be stored and cannot be has failed: it is then `scope.error`."""
        return True

    @abstractmethod
    def terminal(self) -> OutT:
        """The end of the answer, after `finish`, `fail` or `cancel`, and after it was stored."""

    @abstractmethod
    def join(self, first: OutT, second: OutT) -> OutT:
        """Both, in this order."""

    def report(self, error: GatewayError | None) -> None:
        """Tell plugins that the answer has ended."""
        return


class Answer(Generic[PlanT, OutT, OutputT]):
    """One answer. If the model of its output does not answer, it is begun again with the next model of its attempts.

    `prepare` refuses what cannot be run, before anything is sent. `run` raises nothing but the cancellation of its task (and
    `StoreUnavailable` for a background response, which another process ends): whatever fails is `scope.error`, and the end of
    the answer tells it.
    """

    def __init__(
        self,
        plan: PlanT,
        services: Services,
        scope: RunScope,
        output_of: Callable[[PlanT, OutputT | None], OutputT],
        attempts: Attempts[PlanT] | None = None,
    ) -> None:
        """`output_of` makes the output of a plan; its second argument is the output whose place it takes. `attempts` has the models
        that are left."""
        self.services = services
        self.scope = scope
        self.output: OutputT = output_of(plan, None)
        self.head_sent = False
        """Whether the HTTP status was sent. Later failures are told by the end of the answer."""
        self._output_of = output_of
        self._has_started = False
        """Whether the opening of an output was made."""
        self._attempts = attempts
        self._held: HeldSink[OutT] | None = None
        """The sink of the current attempt, if nothing is sent before the engine's first output."""

    @property
    def model(self) -> ServedModel:
        """The model that answers. It may change until something is sent."""
        return self.output.model

    @property
    def may_change(self) -> bool:
        """Whether another model is left, which may answer as long as there is no output."""
        return self._attempts is not None and self._attempts.more

    @property
    def refused(self) -> bool:
        """Whether the answer has failed before anything was handed out: its error is the whole answer."""
        held = self._held
        return (
            held is not None
            and not held.released
            and not self.head_sent
            and not self.output.in_background
            and self.scope.error is not None
        )

    async def prepare(self) -> None:
        """Prepare the output of the first model that accepts the request, and take a place in its queue. Raises `GatewayError`."""
        scope = self.scope
        while True:
            try:
                expected = await self.output.prepare()
                scope.reserve(self.output.model, expected)
                try:
                    await scope.admit()
                except BaseException:
                    scope.abandon()
                    raise
            except GatewayError as error:
                if scope.denied:
                    raise
                await self._begin_again(error)
            else:
                return

    async def prepare_alone(self) -> None:
        """`prepare`, for who has left the context of the attempts."""
        if self._attempts is None:
            await self.prepare()
            return
        async with self._attempts:
            await self.prepare()

    async def run(self, sink: Sink[OutT]) -> OutT | None:
        """Make the answer, handing to `sink` what is ready. Returns its end, which is left to be sent; None if another process has
        ended it, or will."""
        scope = self.scope
        with scope.registered():
            kept: bool | None = None
            try:
                rest: OutT | None = None
                try:
                    with scope.stoppable():
                        rest = await self._make(sink)
                except asyncio.CancelledError:
                    # The client has gone. What was made is kept, and counts.
                    self.output.cancel()
                    kept = await asyncio.shield(self.output.keep(scope))
                    raise
                if rest is None:
                    rest = self._ended_early()
                try:
                    kept = await self.output.keep(scope)
                except asyncio.CancelledError:
                    # Of a background response another process stores the end, when the lease expires.
                    if not self.output.in_background:
                        kept = await asyncio.shield(self.output.keep(scope))
                    raise
            except StoreUnavailable as error:
                scope.error = error
                raise
            finally:
                self._report(kept=kept)
            if not kept:
                return None
            output: Output[OutT] = self.output
            return output.join(rest, output.terminal())

    def _report(self, *, kept: bool | None) -> None:
        """Report the end to the metrics and limits, and to plugins if the answer was kept. `kept` is None if that failed. What was
        made counts in any case."""
        output = self.output
        status = output.status
        if kept is None and status != "cancelled":
            status = "failed"
        is_request = bool(kept) or output.counts_as_request
        self.scope.finish(status, output.usage(), is_request=is_request)
        if kept:
            output.report(self.scope.error)

    def _ended_early(self) -> OutT:
        """What is left of an answer that something has ended, with what was held back of it."""
        output: Output[OutT] = self.output
        error, held = self.scope.error, self._held
        rest = output.cancel() if error is None else output.fail(error)
        if held is not None and not held.released:
            for part in reversed(held.take()):
                rest = output.join(part, rest)
        return rest

    async def _make(self, sink: Sink[OutT]) -> OutT:
        """Make the answer with the first model that gives any output. Returns what is left to be sent."""
        scope = self.scope
        while True:
            output: Output[OutT] = self.output
            attempts = self._attempts
            if attempts is not None and not attempts.more:
                self._attempts = attempts = None  # and with them the request
            held: HeldSink[OutT] | None = None
            if attempts is not None or output.holds:
                held = HeldSink(sink)
            self._held = held
            writes: Sink[OutT] = sink if held is None else held
            try:
                with output.params, self._released_in_time(held, attempts):
                    self._has_started = True
                    if opening := output.start():
                        await (sink if output.in_background else writes)(opening)
                    del opening  # it may have the whole request
                    if scope.cancelled:
                        return output.cancel()
                    async with scope.turn:
                        if not await output.begin(sink):
                            return output.cancel()
                        rest = await output.make(writes)
                    if held is not None:
                        await held.release()
                    return output.finish(rest)
            except Exception as error:
                if attempts is None or output.began or scope.denied:
                    raise
                if held is not None and held.released:
                    raise
                attempts.check(error)
                scope.attempt_failed(error, output.usage())
                self._held = HeldSink(sink)  # without the beginning of an answer that will not be
                async with attempts:
                    await self._begin_again(error)
                    await self.prepare()

    def _released_in_time(
        self, held: HeldSink[OutT] | None, attempts: Attempts[PlanT] | None
    ) -> AbstractContextManager[None]:
        """The start of a stream is not held back for ever, unless another model may still give it."""
        if held is None or attempts is not None:
            return nullcontext()
        seconds = self.services.config.server.ping_interval or MAX_HELD_SECONDS
        return held.released_after(min(seconds, MAX_HELD_SECONDS))

    async def _begin_again(self, error: Exception) -> None:
        """Begin the answer with the next model, since the last one has failed with `error`. Raises that if none is left."""
        try:
            if self._attempts is None:
                raise error
            plan = await self._attempts.after(error)
        finally:
            del error  # it refers to this frame, if it is raised here
        self.output = self._output_of(plan, self.output)
        self.output.follows = self._has_started
