"""Request headers that are forwarded to the engine."""

from __future__ import annotations

from gateway.base.errors import InvalidRequest
from gateway.http.state import HttpRequest, context_of
from gateway.wire.parameters import SharedParameters

TRACE_HEADERS = (b"traceparent", b"tracestate")
RANK_HEADER = b"x-data-parallel-rank"


def trace_headers(request: HttpRequest) -> dict[str, str] | None:
    """The headers of the W3C trace context: of the request's span if it is traced, otherwise the client's, if it sent
    any."""
    context = context_of(request)
    if context.span is not None:
        return dict(context.span.headers)
    sent = context.headers
    if sent.keys().isdisjoint(TRACE_HEADERS):
        return None
    return {
        name.decode(): value.decode("latin-1")
        for name in TRACE_HEADERS
        if (value := sent.get(name))
    } or None


def take_rank(request: HttpRequest, decoded: SharedParameters) -> None:
    """Set `data_parallel_rank` of `decoded` from the header `X-data-parallel-rank`, as vLLM does. Raises
    `InvalidRequest` unless it is a small whole number."""
    value = context_of(request).headers.get(RANK_HEADER)
    if value is None:
        return
    if not (value.isdigit() and len(value) <= 5 and int(value) <= 65_535):
        raise InvalidRequest(
            "The header X-data-parallel-rank must be a whole number from 0 to 65535.",
            param="data_parallel_rank",
        )
    decoded.data_parallel_rank = int(value)
