"""Authenticators: they identify the sender of a request by something other than the configured API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.plugins.protocols.principals import Principal


class Credentials(Struct, frozen=True, kw_only=True):
    """The parts of a request that identify its sender."""

    path: str
    headers: Mapping[str, str]
    """The headers by lower-case name. If one is sent several times, the first value."""
    tls_name: str | None = None
    """The subject of the client's certificate as RFC 4514 writes it, such as `CN=worker,O=Example`; None unless the server has
    verified one (`tls_client_ca` under `[server]`)."""
    tls_alternative_names: Sequence[str] = ()
    """The alternative names of that certificate with their kinds, such as `DNS:worker.example.com` or
    `URI:spiffe://example.com/worker`."""

    @property
    def bearer(self) -> str | None:
        """The token of `Authorization: Bearer`; None if there is none."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None


class RequestAuthenticator(Protocol):
    """Finds the principals of requests."""

    async def authenticate(self, request: Credentials) -> Principal | None:
        """Return the principal of a request. None asks the next authenticator; the API keys are checked last.

        Raises `AuthenticationError` (401) to refuse the request without asking the next one, and `PermissionDenied`
        (403) if the sender is known but not allowed. Any other exception refuses the request with 500. Called for each
        request except health checks, and for each request on a WebSocket, so lookups elsewhere must be cached and
        bounded.
        """
        ...
