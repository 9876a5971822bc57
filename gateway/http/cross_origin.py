"""Cross-origin requests (CORS): preflight requests, which have no API key, and the headers that scripts may read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
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
"""Further response headers that scripts may read. Clients show them in their errors."""


class OriginPatterns(CORSConfig):
    """A CORS configuration whose `*` stands for a part of the scheme, the host or the port. Litestar's `*` matches any
    text, so that `https://*.example.com` would allow `https://evil.com/.example.com`."""

    @cached_property
    def allowed_origins_regex(self) -> re.Pattern[str]:
        return re.compile("|".join(map(_pattern, self.allow_origins)))


def _pattern(origin: str) -> str:
    scheme, divider, rest = origin.rpartition("://")
    host = re.escape(rest).replace(re.escape("*"), r"[A-Za-z0-9._:\[\]-]*")
    if divider:
        return re.escape(scheme).replace(re.escape("*"), "[A-Za-z0-9+.-]*") + divider + host
    # A pattern such as `*.example.com` allows any scheme.
    return f"(?:[A-Za-z0-9+.-]+://)?{host}" if rest.startswith("*") else host


def cors_config(origins: Sequence[str]) -> CORSConfig | None:
    """Litestar's configuration for `origins`; None disables CORS."""
    if not origins:
        return None
    return OriginPatterns(allow_origins=list(origins), expose_headers=list(EXPOSED))


def is_preflight(scope: Any) -> bool:
    """Whether this is a browser's preflight request, which never has a key (WHATWG Fetch, 4.8)."""
    headers = Headers.from_scope(scope)
    return (
        scope["method"] == "OPTIONS"
        and "origin" in headers
        and "access-control-request-method" in headers
    )


def refusal_headers(config: CORSConfig | None, scope: Any) -> list[tuple[bytes, bytes]]:
    """CORS headers for an answer that is not sent by Litestar, so that the page can read the error."""
    origin = Headers.from_scope(scope).get("origin")
    if config is None or origin is None or not config.is_origin_allowed(origin):
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", ", ".join(EXPOSED).encode()),
        (b"vary", b"Origin"),
    ]
