"""The lifecycle of one run: its place in the queue, its deadline, and its early end by cancellation or shutdown."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from copy import copy
from types import TracebackType
from typing import Final

from gateway.access.admission import Admission, Reservation
from gateway.access.limiter import AdmittedRequest
from gateway.base.errors import DeadlineExceeded, GatewayError, PermissionDenied, RateLimited
from gateway.base.shared_timers import SharedTimer
from gateway.generation.usage import ExpectedTokens
from gateway.models.served_model import ServedModel
from gateway.observe.request_context import current_context
from gateway.observe.run_stats import RunStats, clock
from gateway.plugins.protocols import Principal
from gateway.services import Services
from gateway.wire.response import ResponseStatus, Usage

logger = logging.getLogger("gateway.answers.run_scope")


WAIT_WITHIN: Final = 30.0
"""Maximum time in the queue, in seconds, of a run that another run has started and waits for. Without a limit, such
runs could wait for each other forever."""
_UNKNOWN = ExpectedTokens()
_held: ContextVar[tuple[Admission, ...]] = ContextVar("gateway.held_places", default=())
"""The queues in which the current task's run, and the runs that started it, hold a place; outermost first."""


class RunScope:
    """The part that runs of all APIs have in common.

    A run reserves a place in the queue, does its work within `stoppable`, and then reads `error` and `cancelled`. Within
    the context of the scope, a shutdown waits for the run. The scope does not refer to its run, so that both are freed without the garbage collector.
    """

    def __init__(
        self,
        services: Services,
        *,
        name: str,
        api: str,
        subject: str = "The response",
        shows_cancelled: bool = False,
    ) -> None:
        """`name` is the run's name in the log; `subject` is its name at the beginning of error messages. `api` is the
        short name of its API, for metrics and logs. `shows_cancelled`: whether the API has a status for cancelled
        runs."""
        self.context = context = current_context()
        """The context of the request; None outside of requests."""
        self.principal: Principal | None = None if context is None else context.principal
        """The principal that is served; None in anonymous mode."""
        self.stats = RunStats(api) if context is None else context.new_run(api)
        if services.run_history is not None:
            self.stats.phases = []
        self.error: GatewayError | None = None
        """Why the run failed; None if it has not failed."""
        self.cancelled = False
        """Whether `cancel` cancelled the run. It stays False if the client disconnects, which cancels the task."""
        self.revoked = False
        """Whether an administrator has cancelled the run."""
        self._services = services
        self._shows_cancelled = shows_cancelled
        self._name = name
        self._subject = subject
        self._reservation: Reservation | None = None
        self._expected = ExpectedTokens()
        self._charge: AdmittedRequest | None = None
        self.is_admitted = False
        """Whether the run was counted against the limits of its principal."""
        self.denied = False
        """Whether a limit of the principal rejected the run. Another model would not help."""
        self._stopped_by: GatewayError | None = None
        self._task: asyncio.Task[object] | None = None
        """The task of the run, while the run can be stopped."""
        self._seconds = 0.0
        """The time limit of the run in seconds, set when it begins."""

    @property
    def is_finished(self) -> bool:
        """Whether `finish` was called."""
        return bool(self.stats.ended)

    def reserve(self, model: ServedModel, expected: ExpectedTokens = _UNKNOWN) -> None:
        """Reserve a place in the queue of `model`, and give back an earlier one that was not used. Raises `RateLimited`
        if the queue is full, and `EngineUnavailable` if the model was unloaded."""
        if self._reservation is not None:
            self._reservation.cancel()
        self.stats.model = model.name
        priority = 0 if self.context is None else self.context.priority
        self._reservation = model.admission.reserve(
            self.principal, prompt=expected.prompt, priority=priority
        )
        self.stats.queued = clock()
        self._expected = expected

    async def admit(self) -> None:
        """Count the run against the limits of its principal, unless it was counted already. Raises `RateLimited` or
        `StoreUnavailable`."""
        if self._reservation is not None:
            await self._reservation.claim()
        if self.is_admitted:
            return
        self.is_admitted = True
        principal = self.principal
        if principal is not None:
            self.denied = True
            self._charge = await self._services.limiter.admit(
                principal, prompt=self._expected.prompt, output=self._expected.output
            )
            self.denied = False

    @property
    def slot(self) -> _Slot:
        """A context that admits the run, waits in the queue, and holds the admission until exit. Enter it once."""
        assert self._reservation is not None, "reserve comes before the work"
        return _Slot(self, self._reservation)

    def finish(
        self, status: ResponseStatus, usage: Usage | None, *, is_request: bool = True
    ) -> None:
        """Report the end of the run and its usage to metrics and limits. Called once.

        `is_request`: whether the run also counts as a request in the usage statistics.
        """
        stats = self.stats
        stats.ended = clock()
        stats.status, stats.usage = status, usage
        if self.error is not None:
            stats.error_code = self.error.code or self.error.type
        self._services.metrics.run_finished(stats)
        self._services.usage.run_finished(stats, self.principal, is_request=is_request)
        if (history := self._services.run_history) is not None:
            history.ended(stats, self.principal)
        self.settle(0 if usage is None else usage.total_tokens)
        if usage is not None and self._reservation is not None:
            self._reservation.used(usage.input_tokens, usage.output_tokens)

    def attempt_failed(self, error: Exception, usage: Usage) -> None:
        """Report to the metrics that the model failed. The run continues with another model."""
        stats = copy(self.stats)
        stats.ended, stats.status, stats.usage = clock(), "failed", usage
        if isinstance(error, GatewayError):
            stats.error_code = error.code or error.type
        self._services.metrics.run_finished(stats)
        self.stats.queued = self.stats.admitted = 0.0
        self.stats.output_tokens = 0

    def abandon(self) -> None:
        """Give back the place in the queue if it was not used, and end the admission. May be called repeatedly, and
        after the run."""
        if self._reservation is not None:
            self._reservation.cancel()
        self.settle(0)

    def settle(self, tokens: int) -> None:
        """End the admission of a run that used `tokens` tokens. Only the first call has an effect."""
        charge, self._charge = self._charge, None
        if charge is not None:
            self._services.limiter.settle(charge, tokens)

    def raise_error(self) -> None:
        """Raise `error`, if the run has failed."""
        if self.error is not None:
            raise self.error

    def stop(self, error: GatewayError) -> None:
        """Make the work fail with `error`. Does nothing if the work has not begun, has ended or was stopped already."""
        if self._task is not None and self._stopped_by is None:
            self._stopped_by = error
            self._task.cancel()

    def cancel(self) -> None:
        """End the work as cancelled. If the work has not begun, only `cancelled` is set, which the work checks.

        Does nothing if the work was cancelled or stopped already.
        """
        if not self.cancelled and self._stopped_by is None:
            self.cancelled = True
            if self._task is not None:
                self._task.cancel()

    def revoke(self) -> bool:
        """End the work because an administrator cancels it. Returns whether the work ends early; False if it does not
        run.

        It ends as cancelled if the API has a status for that. Otherwise it fails with an error that clients do not
        retry. Does nothing if the work was cancelled or stopped already.
        """
        if self._task is None:
            return False
        if self.cancelled or self._stopped_by is not None:
            return True
        self.revoked = True
        logger.info("%s: cancelled by an administrator", self._name)
        if self._shows_cancelled:
            self.cancel()
        else:
            self.stop(
                PermissionDenied(
                    "An administrator of this server has cancelled the request.",
                    code="request_cancelled",
                )
            )
        return True

    def __enter__(self) -> None:
        """Register the run: a shutdown waits for it, and stops it after a time limit."""
        self._services.runs.add(self)

    def __exit__(self, *exc_info: object) -> None:
        self._services.runs.discard(self)

    def stoppable(self) -> _Stoppable:
        """Return the context of the work. The deadline, `stop` and `cancel` end the work early.

        The context suppresses all exceptions except the cancellation of the task by other code, for example if the
        client disconnects. Afterwards, `error` or `cancelled` is set. A place in the queue that was not used is given
        back.
        """
        return _Stoppable(self)

    def _begin(self) -> SharedTimer:
        self._task = asyncio.current_task()
        self._seconds = self._services.settings.request_timeout
        return self._services.timers.call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        self.stop(
            DeadlineExceeded(
                f"{self._subject} took longer than {self._seconds:g} seconds, which is this server's limit."
            )
        )

    def _end(self, cause: BaseException | None) -> bool:
        """Record why the work ended. Returns whether the exception is suppressed."""
        task, self._task = self._task, None
        if self._reservation is not None:
            self._reservation.cancel()
        match cause:
            case None:
                return True
            case GatewayError():
                self.error = cause
            case asyncio.CancelledError():
                if not self.cancelled and self._stopped_by is None:
                    return False
                if task is not None:
                    task.uncancel()
                if not self.cancelled:
                    self.error = self._stopped_by
            case Exception():
                # A plugin or the gateway itself is at fault. The client receives a general message; the log has the details.
                logger.error("%s failed", self._name, exc_info=cause)
                self.error = GatewayError("The server had an internal error on this request.")
            case _:
                return False
        return True


class _Slot:
    """See `RunScope.slot`."""

    __slots__ = ("_held", "_reservation", "_scope")

    def __init__(self, scope: RunScope, reservation: Reservation) -> None:
        self._scope = scope
        self._reservation = reservation
        self._held: tuple[Admission, ...] = ()

    async def __aenter__(self) -> None:
        scope = self._scope
        if not scope.is_admitted:
            await scope.admit()
        self._held = held = _held.get()
        if held:
            await self._enter_within(held)
        else:
            await self._reservation.__aenter__()
        _held.set((*held, self._reservation.admission))
        stats = scope.stats
        stats.admitted = clock()
        if stats.span is not None:
            stats.span.record("queue", stats.queued, stats.admitted)

    async def __aexit__(self, *exc_info: object) -> None:
        _held.set(self._held)
        self._reservation.leave()

    async def _enter_within(self, held: tuple[Admission, ...]) -> None:
        """Wait in the queue while outer runs hold places. Raises `RateLimited` if that takes too long or could never
        end."""
        admission, model = self._reservation.admission, self._scope.stats.model
        if held.count(admission) >= admission.limits.max_running:
            raise RateLimited(
                f"The request that this one is sent for holds the last place of the model '{model}' (max_running). Use another model.",
                retryable=False,
            )
        try:
            async with asyncio.timeout(WAIT_WITHIN):
                await self._reservation.__aenter__()
        except TimeoutError:
            raise RateLimited(
                f"The model '{model}' had no place within {WAIT_WITHIN:g} seconds for a request that is sent for another one, which "
                "holds a place. Retry later."
            ) from None


class _Stoppable:
    """See `RunScope.stoppable`. A class instead of a generator, because each token passes through all waiting
    frames."""

    __slots__ = ("_deadline", "_scope")

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope
        self._deadline: SharedTimer | None = None

    def __enter__(self) -> None:
        self._deadline = self._scope._begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        cause: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._deadline is not None:
            self._deadline.cancel()
        return self._scope._end(cause)
