"""Tracing: spans of a request, which a plugin exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

AttributeValue: TypeAlias = str | int | float | bool | list[str]
Attributes: TypeAlias = Mapping[str, AttributeValue]
"""Attributes of a span, by OpenTelemetry's names."""
SpanKind: TypeAlias = Literal["client", "internal"]


class Span(Protocol):
    """One timed operation of a trace. Times are those of `time.monotonic`. No method raises or blocks."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The W3C trace context that makes the spans of other services children of this one: `traceparent`, and
        `tracestate` if there is one."""
        ...

    def child(self, name: str, *, kind: SpanKind = "internal") -> Span:
        """Begin an operation that is a part of this one. It may end after this one."""
        ...

    def record(
        self, name: str, started: float, ended: float, attributes: Mapping[str, AttributeValue] = {}
    ) -> None:
        """Add a part that has already ended."""
        ...

    def event(self, name: str, at: float) -> None:
        """Add an event that happened at `at`."""
        ...

    def end(
        self,
        attributes: Mapping[str, AttributeValue] = {},
        *,
        name: str | None = None,
        error: str | None = None,
    ) -> None:
        """End the operation. Called once. `name` replaces the operation's name; `error` is the code of the error that
        made it fail."""
        ...


class Tracer(Protocol):
    """Begins the traces of requests."""

    def begin(self, name: str, headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """Begin the span of a request. `headers` are the client's; their trace context is the parent."""
        ...
