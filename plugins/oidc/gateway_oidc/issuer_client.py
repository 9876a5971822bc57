"""Reading an issuer's keys over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, TypeVar

import httpx2
import msgspec
from msgspec import Meta, Struct

from gateway.sdk import ConfigurationError
from gateway.sdk.http import http_client
from gateway.sdk.net import HostGuard
from gateway_oidc.config import OidcConfig

MAX_BYTES: Final = 262_144
"""Maximum size of an issuer's documents."""
MAX_KEYS: Final = 64
"""Maximum number of an issuer's keys."""

DocumentT = TypeVar("DocumentT")


class Unreadable(Exception):
    """The issuer's keys cannot be read now. The message says why, for the log."""


class _Discovery(Struct):
    issuer: str
    jwks_uri: str


class _KeySet(Struct):
    keys: Annotated[list[dict[str, Any]], Meta(max_length=MAX_KEYS)]


class IssuerClient:
    """Reads the keys of one issuer. Follows no redirects, and connects to no metadata service of a cloud."""

    def __init__(self, config: OidcConfig, client: httpx2.AsyncClient) -> None:
        self._issuer = config.issuer
        self._jwks_url = config.jwks_url
        self._timeout = config.timeout
        self._client = client

    async def keys(self) -> Sequence[dict[str, Any]]:
        """The issuer's keys as it publishes them (RFC 7517).

        Raises `Unreadable`, and `ConfigurationError` if the server at the issuer's URL says that it is another issuer.
        """
        try:
            async with asyncio.timeout(self._timeout):
                url = self._jwks_url or await self._discovered()
                return (await self._read(url, _KeySet)).keys
        except TimeoutError:
            raise Unreadable(f"no answer within {self._timeout:g} seconds") from None

    async def _discovered(self) -> str:
        url = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        found = await self._read(url, _Discovery)
        if found.issuer != self._issuer:
            raise ConfigurationError(
                f"{url} is of the issuer '{found.issuer[:200]}', and authenticators.oidc.issuer is '{self._issuer}': they must "
                "be the same, to the last character."
            )
        if self._issuer.startswith("https:") and not found.jwks_uri.startswith("https:"):
            raise Unreadable(f"{url} names a jwks_uri without TLS")
        return found.jwks_uri

    async def _read(self, url: str, document: type[DocumentT]) -> DocumentT:
        try:
            answer = await self._client.get(url)
            answer.raise_for_status()
            return msgspec.json.decode(answer.content, type=document)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise Unreadable(f"{url}: {error or type(error).__name__}") from error
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise Unreadable(f"{url}: {error}") from error


@asynccontextmanager
async def open_client(config: OidcConfig) -> AsyncIterator[IssuerClient]:
    """A client with limits on size, time and addresses. `http` is for private addresses only."""
    async with http_client(
        max_bytes=MAX_BYTES,
        guard=HostGuard(["*"], allow_private=True),
        headers={"accept": "application/json"},
        connect_timeout=config.timeout,
    ) as client:
        yield IssuerClient(config, client)
