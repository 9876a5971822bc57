"""The life cycle of one answer, from its plan to its end: fallback to other models, queue, deadline, early end,
storing.

An `Answer` drives an `Output`. Each API has its own `Output` class: Responses, Chat Completions, Completions, plugins'
APIs.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Generic, TypeVar

from gateway.answers.attempts import Attempts
from gateway.answers.run_scope import RunScope
from gateway.base.errors import GatewayError, StoreUnavailable
from gateway.generation.sinks import MAX_HELD_SECONDS, HeldSink
from gateway.generation.usage import ExpectedTokens
from gateway.generation.writers import Sink
from gateway.models.served_model import ServedModel
from gateway.services import Services
from gateway.wire.response import ResponseStatus, Usage

PlanT = TypeVar("PlanT")
OutT = TypeVar("OutT")
OutputT = TypeVar("OutputT", bound="Output[Any]")

_NO_LIMIT: Final = nullcontext()


class Output(ABC, Generic[OutT]):
    """An API's part of an answer, made with the model of one plan. A fallback to another model creates a new output.

    The methods are called in this order: `prepare`; `start`, `begin`, `make`, `finish`; `keep`; `report` and
    `terminal`, only if `keep` returned True. If the answer ends early, `fail` or `cancel` replaces the rest of `start`
    to `finish`. Values of the type `OutT` are parts of the answer in the API's own form, such as events or bytes. The
    caller sends what a method returns.
    """

    model: ServedModel
    params: AbstractContextManager[None]
    """A context in which errors name the parameters of the request."""

    def __init__(self) -> None:
        self.status: ResponseStatus = "in_progress"
        self.replaces_started = False
        """Whether this output replaces the output of another model that had started."""
        self.in_background = False
        """Whether the answer runs in the background, so that no client waits for it. The result of `start` is then not
        held back, because it is the same for each model."""

    @property
    def counts_as_request(self) -> bool:
        """Whether usage statistics count a request for this answer even if it was not kept."""
        return True

    @abstractmethod
    async def prepare(self) -> ExpectedTokens:
        """Make the first prompt and let the engine check it. Returns the number of tokens that the answer may use.
        Raises `GatewayError` for failures that are answered with an HTTP status."""

    @property
    @abstractmethod
    def began(self) -> bool:
        """Whether an engine has given output for the answer, so that another model can no longer replace this one."""

    @property
    @abstractmethod
    def holds(self) -> bool:
        """Whether nothing is sent before the engine's first output, because the engine may still refuse the request."""

    @abstractmethod
    def usage(self) -> Usage:
        """Return the tokens used so far."""

    @abstractmethod
    def start(self) -> OutT:
        """Start the answer. Returns the part that is sent before the request leaves the queue."""

    async def begin(self, sink: Sink[OutT]) -> bool:
        """Begin the work, once the request has left the queue. Returns False if another process has ended the
        answer."""
        return True

    @abstractmethod
    async def make(self, sink: Sink[OutT]) -> OutT:
        """Make the whole answer, writing to `sink`. Returns the last part, which was not written. Raises if it
        fails."""

    @abstractmethod
    def finish(self, rest: OutT) -> OutT:
        """End an answer that succeeded. `rest` is the result of `make`. Returns `rest` and the parts that follow it."""

    @abstractmethod
    def fail(self, error: GatewayError) -> OutT:
        """End the answer with an error. Returns its remaining parts."""

    @abstractmethod
    def cancel(self) -> OutT:
        """End the answer as cancelled. Returns its remaining parts."""

    async def keep(self, scope: RunScope) -> bool:
        """Store the ended answer, before its end is sent. Returns False if another process reports the end of the
        answer.

        If an answer that must be stored cannot be, it becomes a failed one, and `scope.error` is set.
        """
        return True

    @abstractmethod
    def terminal(self) -> OutT:
        """Return the final part of the answer. Called after `finish`, `fail` or `cancel`, and after `keep`."""

    @abstractmethod
    def join(self, first: OutT, second: OutT) -> OutT:
        """Return `first` followed by `second`."""

    def report(self, error: GatewayError | None) -> None:
        """Notify plugins that the answer has ended."""
        return


class Answer(Generic[PlanT, OutT, OutputT]):
    """Runs one answer. If its model fails before any output, the answer is begun again with the next model of
    `attempts`.

    `prepare` rejects requests that cannot be run, before anything is sent. `run` does not raise if the answer fails: it
    sets `scope.error`, and the end of the answer reports the error. It raises `CancelledError` if its task is
    cancelled, and `StoreUnavailable` for a background response whose end cannot be stored (another process then ends
    it).
    """

    def __init__(
        self,
        plan: PlanT,
        services: Services,
        scope: RunScope,
        output_of: Callable[[PlanT, OutputT | None], OutputT],
        attempts: Attempts[PlanT] | None = None,
    ) -> None:
        """`output_of` makes the output of a plan; its second argument is the output that it replaces, or None.
        `attempts` provides the plans of the remaining models."""
        self.services = services
        self.scope = scope
        self.output: OutputT = output_of(plan, None)
        self._output_of = output_of
        self._has_started = False
        """Whether `start` was called for an output."""
        self._attempts = attempts
        self._held: HeldSink[OutT] | None = None
        """The sink of the current output, if nothing is sent before the engine's first output."""

    @property
    def model(self) -> ServedModel:
        """The model that answers. It may change until a part of the answer is sent."""
        return self.output.model

    @property
    def may_change(self) -> bool:
        """Whether another model may still replace the current one, if that fails before any output."""
        return self._attempts is not None and self._attempts.more

    @property
    def refused(self) -> bool:
        """Whether the answer failed before any part of it was sent, so that the error is the whole answer."""
        held = self._held
        return (
            held is not None
            and not held.released
            and not self.output.in_background
            and self.scope.error is not None
        )

    async def prepare(self) -> None:
        """Prepare the output of the first model that accepts the request, and reserve a place in that model's queue.
        Raises `GatewayError` if no model accepts it."""
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
        """Call `prepare` within the context of the attempts. For callers that are not in that context."""
        if self._attempts is None:
            await self.prepare()
            return
        with self._attempts:
            await self.prepare()

    async def run(self, sink: Sink[OutT]) -> OutT | None:
        """Make the answer, writing its parts to `sink` when they are ready. Returns the end of the answer, which the
        caller sends; or None if another process has ended the answer, or will end it."""
        scope = self.scope
        with scope:
            kept: bool | None = None
            try:
                rest: OutT | None = None
                try:
                    with scope.stoppable():
                        rest = await self._make(sink)
                except asyncio.CancelledError:
                    # The client has disconnected. Store and count the output so far.
                    self.output.cancel()
                    kept = await asyncio.shield(self.output.keep(scope))
                    raise
                if rest is None:
                    rest = self._ended_early()
                try:
                    kept = await self.output.keep(scope)
                except asyncio.CancelledError:
                    # If this is a background response, another process stores its end when the lease expires.
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
            if (held := self._held) is not None and held.released:
                await held.release()  # the timed release of the start may still be in progress
            output: Output[OutT] = self.output
            return output.join(rest, output.terminal())

    def _report(self, *, kept: bool | None) -> None:
        """Report the end of the answer to metrics and limits, and to plugins if it was kept. `kept` is the result of
        `Output.keep`, or None if that failed. The used tokens count in any case."""
        output = self.output
        status = output.status
        if kept is None and status != "cancelled":
            status = "failed"
        is_request = bool(kept) or output.counts_as_request
        self.scope.finish(status, output.usage(), is_request=is_request)
        if kept:
            output.report(self.scope.error)

    def _ended_early(self) -> OutT:
        """End an answer that failed or was cancelled. Returns the parts that were held back, and the remaining
        parts."""
        output: Output[OutT] = self.output
        error, held = self.scope.error, self._held
        rest = output.cancel() if error is None else output.fail(error)
        if held is not None and not held.released:
            for part in reversed(held.take()):
                rest = output.join(part, rest)
        return rest

    async def _make(self, sink: Sink[OutT]) -> OutT:
        """Make the answer with the first model that gives any output. Returns the parts that are not sent yet."""
        scope = self.scope
        while True:
            output: Output[OutT] = self.output
            attempts = self._attempts
            if attempts is not None and not attempts.more:
                self._attempts = attempts = None  # frees the request, which they refer to
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
                    del opening  # it may contain the whole request
                    if scope.cancelled:
                        return output.cancel()
                    async with scope.slot:
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
                with attempts:
                    await self._begin_again(error)
                    self._held = HeldSink(sink)  # drops the start of the failed attempt
                    await self.prepare()

    def _released_in_time(
        self, held: HeldSink[OutT] | None, attempts: Attempts[PlanT] | None
    ) -> AbstractContextManager[None]:
        """Return a context in which `held` is released after a time limit, so that the client sees the start of the
        stream. There is no limit while another model may still answer."""
        if held is None or attempts is not None:
            return _NO_LIMIT
        seconds = self.services.config.server.ping_interval or MAX_HELD_SECONDS
        return held.released_after(min(seconds, MAX_HELD_SECONDS))

    async def _begin_again(self, error: Exception) -> None:
        """Replace the output by one of the next model, after the last model failed with `error`. Raises if no model is
        left."""
        try:
            if self._attempts is None:
                raise error
            plan = await self._attempts.after(error)
        finally:
            del error  # break the reference cycle: its traceback refers to this frame
        self.output = self._output_of(plan, self.output)
        self.output.replaces_started = self._has_started
