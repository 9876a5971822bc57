"""Fallback: a request is tried with one model after another until one answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from gateway.access.limiter import Limiter, Preparation
from gateway.base.errors import GatewayError, InvalidRequest, ServerShuttingDown, StoreUnavailable
from gateway.generation.policies import Rerouted
from gateway.models.model_lookup import ModelLookup, WaitFor
from gateway.models.model_slot import ModelUse
from gateway.observe.metrics import Metrics
from gateway.observe.request_context import current_principal

logger = logging.getLogger("gateway.answers.attempts")

PlanT = TypeVar("PlanT")

_MAX_REROUTES = 4
"""Maximum number of times that policies may send a request to another model."""
_OF_THE_MODEL = ("context_length_exceeded", "invalid_encrypted_content")
"""Codes of invalid requests that another model may accept."""


class Attempts(Generic[PlanT]):
    """The models that may answer one request, in the order in which they are tried, and the function that plans the
    request.

    After an error, the next model is tried if it may succeed: the model is unavailable or failed, its queue is full, or
    the prompt is too long for it. Any other error is caused by the request, and is raised.
    """

    def __init__(
        self,
        names: Sequence[str | None],
        plan: Callable[[str | None], Awaitable[PlanT]],
        lookup: ModelLookup,
        metrics: Metrics,
        limiter: Limiter,
        *,
        use: ModelUse = "generates",
        wait: WaitFor | None = None,
    ) -> None:
        """`names` are the names of the models; not empty. `plan` plans the request for the model of a name, and may
        raise `GatewayError`. `lookup` loads models, for `use`. `wait` waits for a model that is being loaded, until the
        context of this object is left for the first time."""
        self._left = list(names)
        self._plan_by = plan
        self._lookup = lookup
        self._use: ModelUse = use
        self._wait = wait
        self._release: Callable[[], None] | None = None
        """Allows the model of the last plan to be unloaded when it is idle; None if it is not held."""
        self._metrics = metrics
        self._limiter = limiter
        self._entered = False
        self._preparation: Preparation | None = None
        self._reason: Exception | None = None
        """The last error after which another model was tried."""
        self._tried: str | None = None
        self._reroutes = 0

    def __enter__(self) -> Attempts[PlanT]:
        """Enter the context in which the model of the last plan stays loaded. Leave it when the run has a place in the
        queue.

        The first time, the request also counts as one that is being prepared for its principal. Raises `RateLimited` if
        that principal has too many of them. Later entries, for a plan with another model, are not checked again.
        """
        if not self._entered:
            self._entered = True
            self._preparation = self._limiter.prepare(current_principal())
        return self

    def __exit__(self, *exc_info: object) -> None:
        preparation, self._preparation = self._preparation, None
        if preparation is not None:
            preparation.end()
        self._wait = None
        self.release()

    def release(self) -> None:
        """Allow the model of the last plan to be unloaded when it is idle."""
        release, self._release = self._release, None
        if release is not None:
            release()

    async def _plan(self, name: str | None) -> PlanT:
        self.release()
        self._release = await self._lookup.hold(name, self._use, wait=self._wait)
        return await self._plan_by(name)

    @property
    def more(self) -> bool:
        """Whether another model is left."""
        return bool(self._left)

    def check(self, error: Exception) -> None:
        """Raise `error` if no model is left, or if another model could not succeed either."""
        if not self._left or (self._reason is None and not _may_differ(error)):
            raise error

    async def begin(self) -> PlanT:
        """Plan the request for the first model that accepts it."""
        self._tried = self._left.pop(0)
        try:
            return await self._plan(self._tried)
        except GatewayError as error:
            return await self.after(error)

    async def after(self, error: Exception) -> PlanT:
        """Plan the request for the next model, after the last one failed with `error` before any output.

        Raises if no model is left, or if another model could not succeed either.
        """
        try:
            while True:
                if isinstance(error, Rerouted):
                    self._reroutes += 1
                    if self._reroutes > _MAX_REROUTES:
                        raise error
                    self._left.insert(0, error.model)
                elif not _may_differ(error):
                    if self._reason is None:
                        raise error
                    # The request was valid for an earlier model: report that model's failure.
                    error = self._reason
                failed, routed = self._tried, isinstance(error, Rerouted)
                if not self._left:
                    raise error
                if not routed:
                    self._reason = error
                self._tried = self._left.pop(0)
                if routed:
                    logger.info("a policy sends a request for %s to %s", failed, self._tried)
                    try:
                        return await self._plan(self._tried)
                    except GatewayError as failure:
                        error = failure
                        continue
                logger.warning(
                    "the model %s did not answer, trying %s: %s",
                    failed,
                    self._tried,
                    error,
                    exc_info=None if isinstance(error, GatewayError) else error,
                )
                self._metrics.fell_back(failed or "", self._tried or "")
                try:
                    return await self._plan(self._tried)
                except GatewayError as failure:
                    error = failure
        finally:
            del error  # break the reference cycle: its traceback refers to this frame


def _may_differ(error: Exception) -> bool:
    """Whether another model may succeed after one failed with `error`."""
    if isinstance(error, ServerShuttingDown | StoreUnavailable):
        return False
    if isinstance(error, InvalidRequest):
        return error.code in _OF_THE_MODEL
    if isinstance(error, GatewayError):
        return error.status >= 500 or error.status == 429
    return True  # a defect of the model's engine, renderer or format
