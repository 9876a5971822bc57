"""What of a request's headers goes on to the engine."""

from __future__ import annotations

from gateway.routes.state import HttpRequest

TRACE_HEADERS = ("traceparent", "tracestate")


def trace_headers(request: HttpRequest) -> dict[str, str] | None:
    """The W3C trace context, if the client sent one."""
    return {name: value for name in TRACE_HEADERS if (value := request.headers.get(name))} or None
