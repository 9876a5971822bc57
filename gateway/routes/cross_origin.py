"""Pages of other origins (CORS): what they are told before there is a key, and what they may read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar.config.cors import CORSConfig
from litestar.datastructures import Headers

EXPOSED = ("x-request-id", "retry-after")
"""What scripts may read beyond what every script may: clients show it in their errors."""


def cors_config(origins: Sequence[str]) -> CORSConfig | None:
    """What Litestar does for `origins`; None: there is no CORS."""
    if not origins:
        return None
    return CORSConfig(allow_origins=list(origins), expose_headers=list(EXPOSED))


def is_preflight(scope: Any) -> bool:
    """Whether a browser asks if a page may ask: such a request never has a key (WHATWG Fetch, 4.8)."""
    headers = Headers.from_scope(scope)
    return (
        scope["method"] == "OPTIONS"
        and "origin" in headers
        and "access-control-request-method" in headers
    )


def refusal_headers(config: CORSConfig | None, scope: Any) -> list[tuple[bytes, bytes]]:
    """What an answer that does not come through Litestar needs, so that the page may read why it was refused."""
    origin = Headers.from_scope(scope).get("origin")
    if config is None or origin is None or not config.is_origin_allowed(origin):
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", ", ".join(EXPOSED).encode()),
        (b"vary", b"Origin"),
    ]
