"""What is known of one request for the log, the metrics and traces: who asked, for what, when each phase began, and how
it ended. Each value is stamped once; nothing is done per token."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from gateway.deltas import Delta
from gateway.protocols import Span
from gateway.wire.response import ResponseStatus, Usage

_current: ContextVar[RequestStats | None] = ContextVar("gateway_request", default=None)

clock = time.monotonic
"""The clock of all stamps. 0.0 as a stamp means that the phase was not reached."""


class Content(Protocol):
    """The texts of a request, for the log; implemented by `gateway.request_log.RequestContent`."""

    logged: bool

    def read(self, body: bytes) -> None: ...

    def see(self, deltas: Sequence[Delta]) -> None: ...

    def texts(self, *, failed: bool) -> dict[str, str] | None: ...


def current_request() -> RequestStats | None:
    """The request that the calling task works for; None outside of requests."""
    return _current.get()


class RunStats:
    """The measured values of one run: a response, a completion, an embedding or a scoring."""

    __slots__ = (
        "admitted",
        "api",
        "content",
        "decode_seconds",
        "decode_tokens",
        "ended",
        "error_code",
        "first_token",
        "model",
        "prompt_seconds",
        "queued",
        "request_id",
        "response_id",
        "span",
        "started",
        "status",
        "usage",
    )

    def __init__(self, api: str) -> None:
        """`api` is the short name of the API, such as `responses` or `chat`. The run belongs to the current request, and
        counts from its arrival if it is the request's first run."""
        self.api = api
        self.model = ""
        """Name of the model; "" until the run has a place in the queue."""
        self.response_id = ""
        self.started = clock()
        self.queued = 0.0
        """When it took its place in the queue."""
        self.admitted = 0.0
        """When it left the queue."""
        self.first_token = 0.0
        """When the engine's first output arrived."""
        self.ended = 0.0
        self.prompt_seconds = 0.0
        """Time from the beginning of a generation to its first output, summed over all generations."""
        self.decode_seconds = 0.0
        """Time between the first and the last output, summed over all generations."""
        self.decode_tokens = 0
        """Number of tokens after the first ones, summed over all generations."""
        self.status: ResponseStatus | None = None
        """The terminal status; None while it runs."""
        self.error_code: str | None = None
        self.usage: Usage | None = None
        request = _current.get()
        self.request_id = "" if request is None else request.id
        self.content: Content | None = None
        """The texts of the request, if they are logged."""
        self.span = None if request is None else request.span
        """The span of the request, if it is traced."""
        if request is not None and request.run is None:
            request.run = self
            self.started = request.started
            self.content = request.content

    @property
    def queue_seconds(self) -> float | None:
        """Time in the queue; None if it has not left it."""
        return self.admitted - self.queued if self.admitted else None

    @property
    def first_token_seconds(self) -> float | None:
        """Time until the first output; None if there was none."""
        return self.first_token - self.started if self.first_token else None

    @property
    def seconds_per_token(self) -> float | None:
        """Mean time per output token after the first; None if there was at most one."""
        return self.decode_seconds / self.decode_tokens if self.decode_tokens else None

    @property
    def seconds(self) -> float:
        """Time until the end, or until now."""
        return (self.ended or clock()) - self.started

    def generated(self, began: float, first: float, tokens: int) -> None:
        """Note the end of a generation of `tokens` tokens, which began at `began` and whose first output came at `first` (0.0: there was
        none)."""
        if first:
            self.prompt_seconds += first - began
            if not self.first_token or first < self.first_token:
                self.first_token = first
            if tokens > 1:
                self.decode_seconds += clock() - first
                self.decode_tokens += tokens - 1


class RequestStats:
    """One request of a client: an HTTP request, one `response.create` of a WebSocket, or a background run."""

    __slots__ = (
        "client_left",
        "content",
        "error_code",
        "id",
        "method",
        "owner",
        "route",
        "run",
        "span",
        "started",
        "status",
    )

    def __init__(self, request_id: str, *, method: str = "", route: str = "") -> None:
        self.id = request_id
        self.method = method
        self.route = route
        """The route's path template; never the path itself, which may contain ids."""
        self.owner: str | None = None
        """The name of the API key."""
        self.started = clock()
        self.status = 0
        """The HTTP status; 0 while there is none."""
        self.error_code: str | None = None
        self.client_left = False
        self.content: Content | None = None
        """The texts of the request, if they are logged."""
        self.span: Span | None = None
        """The span of the request, if it is traced."""
        self.run: RunStats | None = None
        """The request's first run, if it has one."""

    @property
    def seconds(self) -> float:
        """Time since its arrival."""
        return clock() - self.started

    def end_span(self) -> None:
        """End the span, if the request is traced."""
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

    def enter(self) -> None:
        """Make this the current request of the calling task, and of tasks that it starts from now on."""
        _current.set(self)


def background_request(run: RunStats, request_id: str, owner: str | None) -> RequestStats:
    """The request of a background run, which goes on after the client's request. It has the same id if that was
    sent to this process, otherwise `request_id`."""
    stats = RequestStats(run.request_id or request_id, route="background")
    stats.owner, stats.run, stats.content = owner, run, run.content
    stats.started = run.started
    if run.span is not None:
        # The span of the client's request ends with its answer.
        stats.span = run.span = run.span.child("background")
    return stats
