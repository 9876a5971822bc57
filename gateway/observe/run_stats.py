"""Measured values of one run, for the log, metrics and traces: model, start of each phase, outcome.

Each time is recorded once. Nothing is done per token.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final, Literal, Protocol

from msgspec import Struct, field

from gateway.base.deltas import Delta
from gateway.plugins.protocols import Span
from gateway.wire.response import ResponseStatus, Usage

clock = time.monotonic
"""The clock of all recorded times, in seconds. A time of 0.0 means that the phase was not reached."""

MAX_PHASES: Final = 100
"""Maximum number of phases kept for one run. Later phases are dropped."""
_LONGEST_NAME: Final = 100
"""Maximum characters kept of a tool's name, which may come from a client."""
_numbers = count(1)


class Content(Protocol):
    """The texts of a request, for the log; implemented by `gateway.observe.request_log.RequestContent`."""

    logged: bool

    def read(self, body: bytes) -> None: ...

    def see(self, deltas: Sequence[Delta]) -> None: ...

    def texts(self, *, failed: bool) -> dict[str, str] | None: ...


class RunningGeneration(Protocol):
    """Measured values of a generation in progress."""

    at: float
    """Time of the first output; 0.0 before it."""

    @property
    def generated(self) -> int:
        """Number of tokens generated so far. Computed only when read, so that it costs nothing per token."""
        ...


class Phase(Struct, frozen=True, gc=False):
    """A part of a run that has ended."""

    kind: Literal["queue", "prompt", "decoding", "tool"]
    name: str
    """The name of the tool; "" for other kinds."""
    began: float
    ended: float


class LiveGeneration(Struct, frozen=True):
    """A generation that has not ended."""

    began: float
    run: RunningGeneration


class LiveTool(Struct, frozen=True):
    """A call of a tool that has not ended."""

    began: float
    name: str


class RunStats(Struct, eq=False):
    """The measured values of one run: a response, a completion, an embedding or a scoring."""

    api: str
    """Short name of the API, such as `responses` or `chat`."""
    request_id: str = ""
    """Id of the request to which the run belongs, if any. See `RequestContext.new_run`."""
    span: Span | None = None
    """The span of the request, if it is traced."""
    model: str = ""
    """Name of the model; "" until the run has a place in the queue."""
    response_id: str = ""
    started: float = field(default_factory=clock)
    queued: float = 0.0
    """Time at which the run entered the queue."""
    admitted: float = 0.0
    """Time at which the run left the queue."""
    first_token: float = 0.0
    """Time at which the engine's first output arrived."""
    ended: float = 0.0
    prompt_seconds: float = 0.0
    """Time from the beginning of a generation to its first output, summed over all generations."""
    decode_seconds: float = 0.0
    """Time between the first and the last output, summed over all generations."""
    decode_tokens: int = 0
    """Number of tokens after the first one, summed over all generations."""
    number: int = field(default_factory=_numbers.__next__)
    """Sequence number of the run in this process."""
    output_tokens: int = 0
    """Number of tokens of all generations that have ended."""
    turns: int = 0
    """Number of generations that have ended."""
    generations: list[LiveGeneration] = []
    """Generations in progress."""
    tools: list[LiveTool] = []
    """Tool calls in progress."""
    phases: list[Phase] | None = None
    """Phases that have ended, at most `MAX_PHASES`; None if phases are not kept."""
    status: ResponseStatus | None = None
    """The terminal status; None until the run has ended."""
    error_code: str | None = None
    engine_request_id: str = ""
    """The engine's id of the last generation. A remote server receives it as `X-Request-Id`."""
    usage: Usage | None = None
    content: Content | None = None
    """The texts of the request, if they are logged."""

    @property
    def queue_seconds(self) -> float | None:
        """Time in the queue; None if the run has not left it."""
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

    def generates(self, generation: LiveGeneration) -> None:
        """Record the beginning of a generation."""
        self.generations.append(generation)

    def generated(self, generation: LiveGeneration, tokens: int) -> None:
        """Record the end of a generation of `tokens` tokens."""
        began, first = generation.began, generation.run.at
        self.generations.remove(generation)
        self.turns += 1
        self.output_tokens += tokens
        if self.phases is not None:
            now = clock()
            self._keep(Phase("prompt", "", began, first or now))
            if first:
                self._keep(Phase("decoding", "", first, now))
        if first:
            self.prompt_seconds += first - began
            if not self.first_token or first < self.first_token:
                self.first_token = first
            if tokens > 1:
                self.decode_seconds += clock() - first
                self.decode_tokens += tokens - 1

    @contextmanager
    def running_tool(self, name: str) -> Iterator[None]:
        """Record a call of the tool with that name, from entering the context until leaving it."""
        call = LiveTool(clock(), name[:_LONGEST_NAME])
        self.tools.append(call)
        try:
            yield
        finally:
            self.tools.remove(call)
            self._keep(Phase("tool", call.name, call.began, clock()))

    def _keep(self, phase: Phase) -> None:
        if self.phases is not None and len(self.phases) < MAX_PHASES:
            self.phases.append(phase)
