"""Header checks before authentication and routing: `Host`, `Origin` and the type of the body.

A server without API keys trusts every client that can reach it. These checks protect it from web pages in a local
browser: pages of other origins, and pages whose host name an attacker has pointed at this machine (DNS rebinding).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from litestar.config.cors import CORSConfig

from gateway.base.errors import GatewayError, InvalidRequest, PermissionDenied, UnsupportedMediaType
from gateway.config import AllowedHosts, ServerConfig

LOOPBACK: Final = ("localhost", "127.0.0.0/8", "::1")
_CACHED: Final = 256
"""Number of `Host` values whose check is cached. Only accepted values are cached."""
_PROBES: Final = frozenset(("/health", "/health/", "/ready", "/ready/"))
"""Load balancers and orchestrators request these by address; the answers contain nothing private."""
_FORM_TYPES: Final = frozenset((b"text/plain", b"application/x-www-form-urlencoded"))
"""Besides `multipart/form-data`, the types that a page can send to another origin without a CORS preflight. No route
accepts these two; routes that accept `multipart/form-data` declare it."""
_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
"""The characters that a host may contain (RFC 3986, 3.2.2), as in Litestar's router."""
_ONCE: Final = (
    b"host",
    b"origin",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"authorization",
    b"x-api-key",
)
"""Headers that must not be repeated, because a proxy might use another occurrence than the server does."""


class RequestGuard:
    """The checks of one configuration. Every request passes `check`, and every WebSocket handshake
    `check_handshake`."""

    def __init__(self, config: ServerConfig, cors: CORSConfig | None) -> None:
        self._cors = cors
        self._keyless = not config.needs_key
        self._hosts = allowed_hosts(config)
        self._known_hosts: set[bytes] = set()

    def check(self, scope: Any, headers: Mapping[bytes, bytes]) -> None:
        """Check an HTTP request. `headers` are those of the scope, by name. Raises `GatewayError`."""
        sent = scope["headers"]
        if len(headers) != len(sent):
            _check_repeated(sent)
        host = headers.get(b"host")
        if host not in self._known_hosts:
            self._check_host(scope, host)
        coding = headers.get(b"transfer-encoding")
        if coding is not None:
            _check_coding(scope, coding)
        method = scope["method"]
        if method == "GET":
            return
        if self._keyless:
            self._check_origin(headers, host)
        if method != "OPTIONS" and (
            coding is not None or headers.get(b"content-length", b"0") != b"0"
        ):
            _check_type(headers.get(b"content-type"))

    def check_handshake(self, scope: Any) -> None:
        """Check a WebSocket handshake. Browsers let any page open a WebSocket to any origin. Raises `GatewayError`.

        Foreign origins are rejected even if the server has keys.
        """
        _check_repeated(scope["headers"])
        headers = dict(scope["headers"])
        host = headers.get(b"host")
        if host not in self._known_hosts:
            self._check_host(scope, host)
        self._check_origin(headers, host)

    def _check_host(self, scope: Any, host: bytes | None) -> None:
        if host is None:
            _check_missing_host(scope)
            return
        if scope["path"] in _PROBES:
            return
        name = host.decode("latin-1")
        if self._hosts is not None and not self._hosts.allow(name):
            raise PermissionDenied(
                f"The host '{name[:100]}' is not allowed. Without API keys the server answers to the names of this machine "
                "only: add the host to allowed_hosts under [server], or configure API keys."
                if self._keyless
                else f"The host '{name[:100]}' is not allowed. Add it to allowed_hosts under [server].",
                code="host_not_allowed",
            )
        if not _HOST.fullmatch(host):
            raise InvalidRequest("Invalid host header")
        if len(self._known_hosts) >= _CACHED:
            self._known_hosts.clear()
        self._known_hosts.add(host)

    def _check_origin(self, headers: Mapping[bytes, bytes], host: bytes | None) -> None:
        """Check the origin. The server's own origin is trusted: a page has it only under an accepted host name."""
        origin = headers.get(b"origin")
        if origin is None:
            # Browsers send `Origin` with all requests except plain GET requests, for which they send `Sec-Fetch-Site`.
            if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
                raise _foreign("another origin")
            return
        if host is not None and origin.partition(b"://")[2] == host:
            return
        name = origin.decode("latin-1")
        if self._cors is None or not self._cors.is_origin_allowed(name):
            raise _foreign(name[:100])


def allowed_hosts(config: ServerConfig) -> AllowedHosts | None:
    """The accepted hosts; None if any host is accepted."""
    configured = config.allowed_hosts
    if configured is not None:
        return None if "*" in configured else AllowedHosts((*LOOPBACK, *configured))
    if config.needs_key or not config.local:
        return None
    return AllowedHosts(LOOPBACK)


def _check_missing_host(scope: Any) -> None:
    if scope["http_version"] != "1.0":  # RFC 9112, 3.2; HTTP/1.0 requests may have none
        raise InvalidRequest("The request has no Host header.")


def _check_repeated(headers: Sequence[tuple[bytes, bytes]]) -> None:
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise InvalidRequest(f"The request has more than one {name.decode().title()} header.")


def _check_coding(scope: Any, coding: bytes) -> None:
    """Reject combined transfer codings, with which proxies may see a different end of the body (RFC 9112, 6.1)."""
    if scope["http_version"] == "1.0" or coding.strip().lower() != b"chunked":
        raise InvalidRequest(
            "The only transfer coding is 'chunked', with HTTP/1.1.", headers={"connection": "close"}
        )


def _check_type(content_type: bytes | None) -> None:
    kind = (content_type or b"").partition(b";")[0].strip().lower()
    if not kind:
        raise UnsupportedMediaType(
            "The request has a body and no content type. Add the header 'content-type: application/json'."
        )
    if kind in _FORM_TYPES:
        raise UnsupportedMediaType(
            f"The content type '{kind.decode()}' is not supported. Send JSON with the header "
            "'content-type: application/json'; for curl, add -H 'content-type: application/json'."
        )


def _foreign(origin: str) -> GatewayError:
    return PermissionDenied(
        f"Pages of {origin} may not use this server. Add the origin to cors_allow_origins under [server].",
        code="origin_not_allowed",
    )
