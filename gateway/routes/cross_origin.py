"""Cross-origin requests (CORS): preflight requests, which have no key, and readable headers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar.config.cors import CORSConfig
from litestar.datastructures import Headers

EXPOSED = (
    "x-request-id",
    "openai-processing-ms",
    "openai-version",
    "retry-after",
    "x-litegate-model",
    *(
        f"x-ratelimit-{what}-{kind}"
        for what in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    ),
)
"""Additional response headers that scripts may read; clients show them in their errors."""


def cors_config(origins: Sequence[str]) -> CORSConfig | None:
    """Litestar's configuration for `origins`; None disables CORS."""
    if not origins:
        return None
    return CORSConfig(allow_origins=list(origins), expose_headers=list(EXPOSED))


def is_preflight(scope: Any) -> bool:
    """Whether this is a browser's preflight request, which never has a key (WHATWG Fetch, 4.8)."""
    headers = Headers.from_scope(scope)
    return (
        scope["method"] == "OPTIONS"
        and "origin" in headers
        and "access-control-request-method" in headers
    )


def refusal_headers(config: CORSConfig | None, scope: Any) -> list[tuple[bytes, bytes]]:
    """CORS headers for an answer that does not come from Litestar, so that the page can read the error."""
    origin = Headers.from_scope(scope).get("origin")
    if config is None or origin is None or not config.is_origin_allowed(origin):
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", ", ".join(EXPOSED).encode()),
        (b"vary", b"Origin"),
    ]
