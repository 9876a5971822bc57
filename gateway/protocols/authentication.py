"""Authenticators: who sends a request, by something other than the configured API keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.protocols.principals import Principal


class Credentials(Struct, frozen=True, kw_only=True):
    """The parts of a request that identify its sender."""

    path: str
    headers: Mapping[str, str]
    """By lower-case name. Of a header that is sent several times, the first."""
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
        """The principal of a request; None to ask the next authenticator, and at last the API keys.

        Raises `AuthenticationError` (401) to refuse the request without asking further, and `PermissionDenied` (403) for a
        sender that is known and may not. Called for each request but health checks, and for each turn of a WebSocket, so
        what it looks up elsewhere must be cached and bounded. Anything else that it raises refuses the request with 500.
        """
        ...
