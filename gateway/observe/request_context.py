"""The context of one request: who sends it, and what is recorded of it for the log, metrics and traces.

The HTTP layer creates it and hands it to the parts that process the request. The current context, which tasks inherit,
is for log lines and for the services of plugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy

import msgspec
from msgspec import Struct, field

from gateway.base.shares import OWNER
from gateway.observe.run_stats import Content, RunStats, clock
from gateway.plugins.protocols import Principal, PrincipalLimits, Span

_CURRENT: ContextVar[RequestContext | None] = ContextVar("gateway.request", default=None)


class RequestContext(Struct, eq=False):
    """One request of a client: an HTTP request, one `response.create` of a WebSocket, or a background run."""

    id: str
    method: str = ""
    route: str = ""
    """The route's path template. The path itself may contain ids."""
    headers: Mapping[bytes, bytes] = {}
    """The request's headers, with names in lower case. Of a repeated header, the last."""
    principal: Principal | None = None
    """Who sends the request; None in anonymous mode, and before the sender is identified."""
    priority: int = 0
    """Added to the principal's priority. A positive value marks background work, which is served after all other work."""
    is_internal: bool = False
    """Whether the gateway sends the request itself. It is neither guarded nor authenticated."""
    waits_for_room: bool = True
    """Whether the request may wait until another model is unloaded. False for a request that is sent on behalf of another
    one, which may be using that model: the two would wait for each other."""
    added_headers: list[tuple[bytes, bytes]] = []
    """Headers that are added to the answer."""
    limit_headers: list[tuple[bytes, bytes]] = []
    """Headers of the answer that report the principal's limits."""
    started: float = field(default_factory=clock)
    status: int = 0
    """The HTTP status; 0 before the answer begins."""
    error_code: str | None = None
    client: str | None = None
    """The client's address, if it is logged."""
    client_left: bool = False
    content: Content | None = None
    """The texts of the request, if they are logged."""
    span: Span | None = None
    """The span of the request, if it is traced."""
    run: RunStats | None = None
    """The request's first run, if it has one."""

    @property
    def owner(self) -> str | None:
        """The principal's name; None in anonymous mode."""
        return None if self.principal is None else self.principal.name

    @property
    def seconds(self) -> float:
        """Time since the request's arrival."""
        return clock() - self.started

    def enter(self) -> None:
        """Make this the current context of the calling task and of tasks that it starts from now on."""
        _CURRENT.set(self)
        OWNER.set(self.owner or "")

    def identified(self, principal: Principal | None) -> None:
        """Set the principal, after `enter` was called in the same task."""
        self.principal = principal
        OWNER.set(self.owner or "")

    def new_run(self, api: str) -> RunStats:
        """Create the measured values of a run. The first run of a request starts at the request's arrival, later ones
        start now."""
        run = RunStats(api, self.id, self.span)
        if self.run is None:
            self.run = run
            run.started, run.content = self.started, self.content
        return run

    def end_span(self) -> None:
        """End the request's span, if it is traced."""
        if self.span is None:
            return
        attributes: dict[str, str | int | float | bool | list[str]] = {
            "gateway.request_id": self.id
        }
        name = None
        if self.method:
            name = f"{self.method} {self.route}"
            attributes |= {"http.request.method": self.method, "http.route": self.route}
        if self.status:
            attributes["http.response.status_code"] = self.status
        error = self.error_code
        if (run := self.run) is not None:
            attributes["gateway.api"] = run.api
            if run.response_id:
                attributes["gen_ai.response.id"] = run.response_id
            if run.status is not None:
                attributes["gateway.run.status"] = run.status
            error = run.error_code or error
        if self.client_left:
            attributes["gateway.client_left"] = True
        self.span.end(attributes, name=name, error=error)


def current_context() -> RequestContext | None:
    """The context of the request for which the current task runs; None outside of requests."""
    return _CURRENT.get()


def current_principal() -> Principal | None:
    """The principal of the current context; None outside of requests, and in anonymous mode."""
    context = _CURRENT.get()
    return None if context is None else context.principal


@contextmanager
def within(context: RequestContext) -> Iterator[None]:
    """A block in which `context` is the current one."""
    current, owner = _CURRENT.set(context), OWNER.set(context.owner or "")
    try:
        yield
    finally:
        OWNER.reset(owner)
        _CURRENT.reset(current)


@contextmanager
def as_the_gateway() -> Iterator[None]:
    """A block in which the gateway acts for the current request without the principal's restrictions and limits.

    Its work has the priority of clients, because the request may hold a place in a queue while it waits for this
    work. The tokens are counted for the principal.
    """
    context = _CURRENT.get()
    if context is None or (context.principal is None and context.priority <= 0):
        yield
        return
    free = copy(context)
    free.priority, free.waits_for_room, free.limit_headers = 0, True, []
    if free.principal is not None:
        free.principal = msgspec.structs.replace(
            free.principal, models=None, tools=None, limits=PrincipalLimits()
        )
    with within(free):
        yield


def background_context(
    run: RunStats, request_id: str, context: RequestContext | None
) -> RequestContext:
    """Create the context of a background run, which continues after the client's request has ended. `context` is that of
    the client's request; None if another process received it.

    It has the id of the client's request if this process received it, otherwise `request_id`.
    """
    made = RequestContext(run.request_id or request_id, route="background")
    made.run, made.content, made.started = run, run.content, run.started
    if context is not None:
        made.principal, made.priority = context.principal, context.priority
        made.waits_for_room = context.waits_for_room
    if run.span is not None:
        # The span of the client's request ends with its answer.
        made.span = run.span = run.span.child("background")
    return made
