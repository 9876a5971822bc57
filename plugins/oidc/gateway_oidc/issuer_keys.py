"""An issuer's keys: kept, and read again when they are old or a token names an unknown one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm

from gateway.sdk import AuthenticationError, ConfigurationError, GatewayError
from gateway_oidc.config import Algorithm, OidcConfig
from gateway_oidc.issuer_client import Unreadable

logger = logging.getLogger("gateway_oidc")

INVALID_TOKEN: Final = {"www-authenticate": 'Bearer error="invalid_token"'}
"""Headers of a refusal (RFC 6750, 3)."""
RETRY_SECONDS: Final = 30.0
"""Time until keys that could not be read are read again."""

_MEMBERS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The public members of a key, by its type. Shared secrets (`oct`) are not keys of an issuer."""


class IssuerUnavailable(GatewayError):
    """The issuer of tokens cannot be reached, and its key is not known: 503."""

    status = 503
    type = "service_unavailable_error"
    default_code = "issuer_unavailable"


class IssuerKeys:
    """Finds the key of a token. Known keys are found without waiting for the issuer."""

    def __init__(
        self,
        config: OidcConfig,
        fetch: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._fetch = fetch
        self._clock = clock
        self._keys: Sequence[_Key] = ()
        self._read_at: float | None = None
        """When the keys were last read."""
        self._tried_at = -float("inf")
        """When the last reading ended."""
        self._failure: Exception | None = None
        """Why the last reading failed."""
        self._reading: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def kept_fresh(self) -> AsyncIterator[None]:
        """While entered, the keys are read regularly. The first reading is done, but an issuer that is away stops nothing.

        Raises `ConfigurationError` if the server at the issuer's URL says that it is another issuer.
        """
        await self._read()
        if isinstance(self._failure, ConfigurationError):
            raise self._failure
        task = asyncio.create_task(self._refresh(), name="refreshing the keys of the oidc issuer")
        try:
            yield
        finally:
            tasks = [task] if self._reading is None else [task, self._reading]
            for each in tasks:
                each.cancel()
            await asyncio.wait(tasks)

    async def find(self, kid: str | None, algorithm: Algorithm) -> jwt.PyJWK:
        """The key with the id `kid`, for `algorithm`. Without an id, the only key for it.

        Raises `AuthenticationError` if the issuer has no such key, and `IssuerUnavailable` if that cannot be known now.
        """
        if (found := self._known(kid, algorithm)) is not None:
            return found
        await self._read_if_due()
        if (found := self._known(kid, algorithm)) is not None:
            return found
        if self._failure is not None or self._too_old():
            raise IssuerUnavailable(
                "The issuer of this token cannot be reached now, so its key is not known. Retry later.",
                headers={"retry-after": f"{self._config.refetch_interval:.0f}"},
            )
        what = "with an unknown key" if kid is not None else "without the id of its key ('kid')"
        raise AuthenticationError(
            f"The token is signed {what}. Get a new token from the issuer.", headers=INVALID_TOKEN
        )

    async def published_since(
        self, failed: jwt.PyJWK, kid: str | None, algorithm: Algorithm
    ) -> jwt.PyJWK | None:
        """The key that the issuer publishes in place of `failed`, a key that `find` gave and that did not sign the token: an issuer that was
        made anew may use the id again. None if the keys were read a short time ago, or cannot be read, or the key is the same.
        """
        await self._read_if_due()
        found = self._known(kid, algorithm)
        return None if found is None or _same(found, failed) else found

    def _known(self, kid: str | None, algorithm: Algorithm) -> jwt.PyJWK | None:
        if self._too_old():
            return None
        suiting = [
            key.by_algorithm[algorithm]
            for key in self._keys
            if algorithm in key.by_algorithm and (kid is None or key.kid == kid)
        ]
        return suiting[0] if len(suiting) == 1 or (suiting and kid is not None) else None

    def _too_old(self) -> bool:
        return self._read_at is None or self._clock() - self._read_at > self._config.max_key_age

    async def _read_if_due(self) -> None:
        """Read the keys, unless that was done a short time ago."""
        running = self._reading is not None and not self._reading.done()
        if running or self._clock() - self._tried_at >= self._config.refetch_interval:
            await self._read()

    async def _read(self) -> None:
        """Read the keys. Concurrent callers wait for the same reading, which continues if they are cancelled."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_now(), name="reading the keys of the oidc issuer")  # fmt: skip
        await asyncio.shield(self._reading)

    async def _read_now(self) -> None:
        try:
            published = await self._fetch()
        except (Unreadable, ConfigurationError) as error:
            self._failure = error
            logger.warning(
                "the keys of the issuer %s cannot be read: %s", self._config.issuer, error
            )
            return
        finally:
            self._tried_at = self._clock()
        keys = [_public_key(each, self._config.algorithms) for each in published]
        self._keys = [key for key in keys if key is not None]
        self._read_at = self._clock()
        self._failure = None
        if not self._keys:
            logger.warning("the issuer %s has no key for the configured algorithms", self._config.issuer)  # fmt: skip

    async def _refresh(self) -> None:
        while True:
            interval = self._config.refresh_interval
            if self._failure is not None:
                interval = min(interval, RETRY_SECONDS)
            await asyncio.sleep(interval)
            try:
                await self._read()
            except Exception:
                logger.exception("reading the keys of the issuer %s failed", self._config.issuer)


class _Key:
    def __init__(self, kid: str | None, by_algorithm: Mapping[str, jwt.PyJWK]) -> None:
        self.kid = kid
        self.by_algorithm = by_algorithm


def _same(one: jwt.PyJWK, other: jwt.PyJWK) -> bool:
    return bool(one.key == other.key)  # public keys of `cryptography` are compared by their values


def _public_key(published: Mapping[str, Any], algorithms: Sequence[Algorithm]) -> _Key | None:
    """A published key with the algorithms that it may be used for; None if there are none."""
    kid = published.get("kid")
    members = _MEMBERS.get(str(published.get("kty")), ())
    operations = published.get("key_ops", ["verify"])
    if (
        not members
        or not isinstance(kid, str | None)
        or published.get("use", "sig") != "sig"
        or not (isinstance(operations, list) and "verify" in operations)
    ):
        return None
    public = {"kty": published["kty"]} | {name: published.get(name) for name in members}
    suiting: dict[str, jwt.PyJWK] = {}
    for algorithm in algorithms:
        if published.get("alg", algorithm) != algorithm:
            continue
        try:
            key = jwt.PyJWK(public, algorithm)
            too_short = key.Algorithm.check_key_length(key.key)
        except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError):
            continue  # a key of another type or on another curve
        if not too_short:
            suiting[algorithm] = key
    return _Key(kid, suiting) if suiting else None
