"""Registers the authenticator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import OpenAuthenticator, Register, hookimpl
from gateway_oidc.config import OidcConfig

if TYPE_CHECKING:
    from gateway_oidc.authenticator import OidcAuthenticator


@asynccontextmanager
async def open_oidc(config: OidcConfig) -> AsyncIterator[OidcAuthenticator]:
    """The authenticator, with the issuer's keys if the issuer can be reached."""
    from gateway_oidc.authenticator import OidcAuthenticator
    from gateway_oidc.issuer_client import open_client
    from gateway_oidc.issuer_keys import IssuerKeys

    async with open_client(config) as client:
        keys = IssuerKeys(config, client.keys)
        async with keys.kept_fresh():
            yield OidcAuthenticator(config, keys)


@hookimpl
def gateway_register_authenticators(register: Register[OpenAuthenticator]) -> None:
    register(
        "oidc",
        open_oidc,
        config=OidcConfig,
        summary="signed tokens (JWT) of an OpenID Connect issuer",
    )
