"""The gateway's spans as those of OpenTelemetry's SDK."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.sdk import Attributes, SpanKind

logger = logging.getLogger("gateway.otel")

END_SECONDS: Final = 1.0
"""How long a stop waits for the collector."""
_CONTEXT = TraceContextTextMapPropagator()
_PROPAGATED = frozenset((b"traceparent", b"tracestate"))
_KINDS = {"client": trace.SpanKind.CLIENT, "internal": trace.SpanKind.INTERNAL}
_NONE: Attributes = MappingProxyType({})
_LONGEST_HEADER = 4096
"""Longer headers of clients are ignored. A trace state has 512 characters that must be passed on."""


@asynccontextmanager
async def open_tracer() -> AsyncIterator[OtelTracer]:
    """A tracer that exports by OTLP over HTTP, in a thread of its own. What is queued is sent when the context is left, if the
    collector takes it within `END_SECONDS`; otherwise it is dropped."""
    resource = Resource({SERVICE_NAME: "litegate"}).merge(OTELResourceDetector().detect())
    # Without a handler at the interpreter's exit, which would wait for the collector once more.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield OtelTracer(provider.get_tracer("litegate"))
    finally:
        await _shut_down(provider)


async def _shut_down(provider: TracerProvider) -> None:
    """Send what is queued, in a thread that nothing waits for: a collector that is away keeps no server from stopping."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        try:
            provider.shutdown()
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name="otel-shutdown", daemon=True).start()
    try:
        async with asyncio.timeout(END_SECONDS):
            await ended.wait()
    except TimeoutError:
        logger.warning(
            "the collector of traces did not take the last ones within %g s: they are dropped",
            END_SECONDS,
        )


class OtelTracer:
    """Implements `gateway.sdk.Tracer`."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def begin(self, name: str, headers: Iterable[tuple[bytes, bytes]]) -> OtelSpan:
        """Begin the span of a request."""
        carrier = {
            key.decode(): value.decode("latin-1")
            for key, value in headers
            if key in _PROPAGATED and len(value) <= _LONGEST_HEADER
        }
        parent = _CONTEXT.extract(carrier, context=Context())
        span = self._tracer.start_span(name, context=parent, kind=trace.SpanKind.SERVER)
        return OtelSpan(self._tracer, span)


class OtelSpan:
    """Implements `gateway.sdk.Span`."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span, Context())

    @property
    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _CONTEXT.inject(carrier, context=self._context)
        return carrier

    def child(self, name: str, *, kind: SpanKind = "internal") -> OtelSpan:
        span = self._tracer.start_span(name, context=self._context, kind=_KINDS[kind])
        return OtelSpan(self._tracer, span)

    def record(
        self, name: str, started: float, ended: float, attributes: Attributes = _NONE
    ) -> None:
        span = self._tracer.start_span(
            name, context=self._context, attributes=attributes, start_time=_nanoseconds(started)
        )
        span.end(_nanoseconds(ended))

    def event(self, name: str, at: float) -> None:
        self._span.add_event(name, timestamp=_nanoseconds(at))

    def end(
        self,
        attributes: Attributes = _NONE,
        *,
        name: str | None = None,
        error: str | None = None,
    ) -> None:
        span = self._span
        if name is not None:
            span.update_name(name)
        if attributes:
            span.set_attributes(attributes)
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(trace.StatusCode.ERROR, error)
        span.end()


def _nanoseconds(monotonic: float) -> int:
    """A time of `time.monotonic` as nanoseconds since 1970."""
    return time.time_ns() - int((time.monotonic() - monotonic) * 1e9)
