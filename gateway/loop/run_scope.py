"""The lifecycle of one run: its place in the queue, its deadline, and what ends it early."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from copy import copy
from types import TracebackType
from typing import Final

from gateway.errors import DeadlineExceeded, GatewayError, PermissionDenied, RateLimited
from gateway.loop.usage import ExpectedTokens
from gateway.protocols import Principal
from gateway.request_stats import RunStats, clock
from gateway.runtime.admission import Admission, Reservation
from gateway.runtime.callers import current_caller
from gateway.runtime.limiter import AdmittedRequest
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.shared_timers import SharedTimer
from gateway.wire.response import ResponseStatus, Usage

logger = logging.getLogger("gateway.loop.run_scope")


WAIT_WITHIN: Final = 30.0
"""How long a run waits in a queue that is made while another run holds its place: those that run may all wait for each other."""
_UNKNOWN = ExpectedTokens()
_held: ContextVar[tuple[Admission, ...]] = ContextVar("gateway.held_places", default=())
"""Whose places the run holds that the task works for, and the runs that it was made for."""


class RunScope:
    """What all runs have in common. A run reserves, does its work within `stoppable`, and reads how that ended.

    A run is not referred to by its scope: both are freed without the garbage collector.
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
        """`name` is what the log calls the run; `subject` is what its client calls it, at the beginning of a sentence.
        `api` is the short name of its API, for metrics and logs. `shows_cancelled`: whether its answers have a status for a run
        that was cancelled."""
        self.stats = RunStats(api)
        if services.run_history is not None:
            self.stats.phases = []
        self.error: GatewayError | None = None
        """Why the run failed, once it has."""
        self.cancelled = False
        """Whether the run was cancelled by `cancel`. A client that leaves is a `CancelledError` instead."""
        self.revoked = False
        """Whether an administrator has cancelled the run."""
        self._services = services
        self._shows_cancelled = shows_cancelled
        self._name = name
        self._subject = subject
        self._reservation: Reservation | None = None
        self.caller = caller = current_caller()
        """Whose request it is; None outside of requests."""
        self.principal: Principal | None = None if caller is None else caller.principal
        """Who is served; None in anonymous mode."""
        self._expected = ExpectedTokens()
        self._charge: AdmittedRequest | None = None
        self.is_admitted = False
        """Whether the run was counted against the limits of its principal."""
        self.denied = False
        """Whether the principal has reached a limit of its own, whichever model answers."""
        self._stopped_by: GatewayError | None = None
        self._task: asyncio.Task[object] | None = None
        """The task of the run while it can be stopped."""
        self._seconds = 0.0
        """Its time limit, from when it began."""

    @property
    def is_finished(self) -> bool:
        """Whether `finish` was called."""
        return bool(self.stats.ended)

    def reserve(self, model: ServedModel, expected: ExpectedTokens = _UNKNOWN) -> None:
        """Take a place in the queue of `model`, instead of an earlier one that was not used. Raises `RateLimited`."""
        if self._reservation is not None:
            self._reservation.cancel()
        self.stats.model = model.name
        priority = 0 if self.caller is None else self.caller.priority
        self._reservation = model.admission.reserve(
            self.principal, prompt=expected.prompt, priority=priority
        )
        self.stats.queued = clock()
        self._expected = expected

    async def admit(self) -> None:
        """Count the run against the limits of its principal; once. Raises `RateLimited` or `StoreUnavailable`."""
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
    def turn(self) -> _Turn:
        """The place in the queue. Entered once, it admits the run, waits for the turn and holds it."""
        assert self._reservation is not None, "reserve comes before the work"
        return _Turn(self, self._reservation)

    def finish(
        self, status: ResponseStatus, usage: Usage | None, *, is_request: bool = True
    ) -> None:
        """Report the end of the run, with what it has used, to the metrics and the limits. Called once.

        `is_request`: whether the usage has one more request, and not only what it has used.
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
        """Report that the model has failed, and that the run continues with another one."""
        stats = copy(self.stats)
        stats.ended, stats.status, stats.usage = clock(), "failed", usage
        if isinstance(error, GatewayError):
            stats.error_code = error.code or error.type
        self._services.metrics.run_finished(stats)
        self.stats.queued = self.stats.admitted = 0.0
        self.stats.output_tokens = 0

    def abandon(self) -> None:
        """Give back the place in the queue, if it was not used, and end the admission. May be called twice, and after the run."""
        if self._reservation is not None:
            self._reservation.cancel()
        self.settle(0)

    def settle(self, tokens: int) -> None:
        """End the admission of a run that has used `tokens` tokens. Does nothing after the first time."""
        charge, self._charge = self._charge, None
        if charge is not None:
            self._services.limiter.settle(charge, tokens)

    def raise_error(self) -> None:
        """Raise `error`, if the run has failed."""
        if self.error is not None:
            raise self.error

    def stop(self, error: GatewayError) -> None:
        """Make the work fail with `error`. Does nothing if it has not begun, has ended or is stopped already."""
        if self._task is not None and self._stopped_by is None:
            self._stopped_by = error
            self._task.cancel()

    def cancel(self) -> None:
        """End the work as cancelled. Work that has not begun finds `cancelled` set.

        Does nothing if the work has ended, or is cancelled or stopped already.
        """
        if not self.cancelled and self._stopped_by is None:
            self.cancelled = True
            if self._task is not None:
                self._task.cancel()

    def revoke(self) -> bool:
        """End the work because an administrator cancels it: as cancelled, if its API has a word for that, or else with an error,
        which clients do not send again by themselves. Does nothing if the work is cancelled or stopped already. Returns
        whether it ends early; False if it has ended.
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

    def registered(self) -> _Registered:
        """Within the context, a shutdown waits for the run, and then stops it."""
        return _Registered(self)

    def stoppable(self) -> _Stoppable:
        """The context of the work, which ends early at the deadline, by `stop` or by `cancel`.

        The context raises nothing but the cancellation of the task by others, as when the client has gone. Anything else
        that ends the work is `error` or `cancelled` afterwards. A place in the queue that was not used is given back.
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
        """Take down what ended the work; whether that is all there is to do about it."""
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
                # A plugin or the gateway itself is at fault. The client gets a general message; the log has the details.
                logger.error("%s failed", self._name, exc_info=cause)
                self.error = GatewayError("The server had an internal error on this request.")
            case _:
                return False
        return True


class _Turn:
    """See `RunScope.turn`."""

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
        """Wait for the turn while other places are held. Raises `RateLimited` if that takes too long, or for ever."""
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


class _Registered:
    """See `RunScope.registered`."""

    __slots__ = ("_scope",)

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope

    def __enter__(self) -> None:
        self._scope._services.runs.add(self._scope)

    def __exit__(self, *exc_info: object) -> None:
        self._scope._services.runs.discard(self._scope)


class _Stoppable:
    """See `RunScope.stoppable`. Not a generator: every token passes through the frames that wait for it."""

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
