"""Exports the gateway's traces with OpenTelemetry. Configured by its environment variables (`OTEL_*`)."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager

from gateway.sdk import Tracer, hookimpl

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@hookimpl
def gateway_open_tracer() -> AbstractAsyncContextManager[Tracer] | None:
    """The tracer, if an endpoint is configured."""
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    # Imported here, because the libraries take a while to load.
    from gateway_otel.tracer import open_tracer

    return open_tracer()
