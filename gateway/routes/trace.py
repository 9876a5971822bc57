"""Request headers that are forwarded to the engine."""

from __future__ import annotations

from gateway.routes.state import HttpRequest

TRACE_HEADERS = (b"traceparent", b"tracestate")


def trace_headers(request: HttpRequest) -> dict[str, str] | None:
    """The W3C trace context, if the client sent one."""
    sent = dict(request.scope["headers"])
    return {
        name.decode(): value.decode("latin-1")
        for name in TRACE_HEADERS
        if (value := sent.get(name))
    } or None
