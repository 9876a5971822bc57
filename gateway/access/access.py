"""Access control: API keys and anonymous access."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from gateway.base.errors import (
    AuthenticationError,
    ConfigurationError,
    GatewayError,
    PermissionDenied,
)
from gateway.config import ApiKey, ServerConfig
from gateway.observe.request_context import current_principal
from gateway.plugins.protocols import Credentials, Principal, PrincipalLimits, RequestAuthenticator

logger = logging.getLogger("gateway.access.access")

AUTHENTICATION_SECONDS = 10.0
"""Time limit for each call of an authenticator, in seconds."""
MAX_NAME = 256
"""Maximum length of the name of a principal that an authenticator finds."""

_PROBES = frozenset(("/health", "/health/", "/ready", "/ready/"))
"""Health endpoints for load balancers; they need no key."""


def check_access(config: ServerConfig, *, authenticated: bool = False) -> None:
    """Raise `ConfigurationError` if the server would accidentally be open to the network without API keys.

    `authenticated`: whether authenticators identify the senders of requests.
    """
    if authenticated or config.needs_key or config.allow_anonymous or config.local:
        return
    raise ConfigurationError(
        f"server.host is {config.host}, which other machines can reach, and there are no API keys: add some under "
        "[[server.api_keys]] (`gateway key NAME` makes one), or set allow_anonymous = true."
    )


def hash_key(key: str) -> str:
    """Return the form of a key that the configuration contains: SHA-256 in hexadecimal.

    Keys are long and random, so no slow hash is needed.
    """
    return hashlib.sha256(key.encode()).hexdigest()


def principal_of(key: ApiKey) -> Principal:
    """The principal of an API key."""
    return Principal(
        name=key.name,
        models=key.models,
        tools=key.tools,
        limits=PrincipalLimits(
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            tokens_per_day=key.tokens_per_day,
            max_concurrent_requests=key.max_concurrent_requests,
        ),
        priority=key.priority,
        weight=key.weight,
        admin=key.admin,
        key=hashlib.sha256(key.sha256.lower().encode()).hexdigest()[:32],
    )


def _revoked(name: str) -> PermissionDenied:
    return PermissionDenied(
        f"The API key '{name}', with which this was begun, was revoked or has expired.",
        code="api_key_revoked",
    )


class KnownKey(Struct, frozen=True):
    """The properties of one API key, without the key itself."""

    principal: Principal
    expires: float
    """Unix time at which the key expires; infinity if never."""
    source: str
    """Where the key is defined, such as "the configuration"."""


def known_keys(source: str, keys: Sequence[ApiKey]) -> list[tuple[str, KnownKey]]:
    """The keys of `source` with their digests.

    Call it in a thread: for thousands of keys it would block the event loop for longer than a token may be delayed.
    """
    return [
        (key.sha256.lower(), KnownKey(principal_of(key), _unix_time(key.expires), source))
        for key in keys
    ]


class Authenticator:
    """Maps a request to the principal of its API key."""

    def __init__(
        self,
        keys: Sequence[ApiKey],
        *,
        open_metrics: bool = True,
        local: bool = False,
        more_keys: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`open_metrics`: whether `/metrics` is accessible without a key. `local`: whether the server listens on
        loopback. `more_keys`: whether keys come from other sources too, so that a key is needed even if `keys` is
        empty."""
        self._open = _PROBES | {"/metrics"} if open_metrics else _PROBES
        self._local = local
        self._clock = clock
        self._needs_key = bool(keys) or more_keys
        self._more_keys = more_keys
        self._others: Sequence[RequestAuthenticator] = ()
        self._sources: dict[str, Sequence[tuple[str, KnownKey]]] = {}
        # Digests are looked up, not compared in constant time: who does not know a key cannot choose its digest.
        self._by_digest: dict[str, KnownKey] = {}
        self._by_name: dict[str, list[KnownKey]] = {}
        self._by_id: dict[str | None, KnownKey] = {}
        # Replicas with the same keys compute the same tags, so that an owner's cached prefixes are shared between them.
        digests = sorted(key.sha256.lower() for key in keys)
        secret = "".join(digests).encode() if digests or not more_keys else os.urandom(32)
        self._secret = hashlib.sha256(secret).digest()
        self.use_keys("the configuration", keys)

    def use_keys(self, source: str, keys: Sequence[ApiKey]) -> None:
        """Replace the keys of `source`. If several sources contain the same key, the first source takes precedence."""
        self.use_known(source, known_keys(source, keys))

    def use_known(self, source: str, keys: Sequence[tuple[str, KnownKey]]) -> None:
        """Like `use_keys`, for the result of `known_keys`."""
        self._sources[source] = keys
        found: dict[str, KnownKey] = {}
        for digest, known in (each for keys in self._sources.values() for each in keys):
            found.setdefault(digest, known)
        self._by_digest = found
        self._by_name = {}
        self._by_id = {known.principal.key: known for known in found.values()}
        for known in found.values():
            self._by_name.setdefault(known.principal.name, []).append(known)

    def ask_first(self, others: Sequence[RequestAuthenticator]) -> None:
        """Ask the authenticators `others` before looking at API keys. If there are any, no request is anonymous."""
        self._others = others
        if others:
            self._needs_key = self._more_keys = True

    async def identify(
        self,
        path: str,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        tls_name: str | None = None,
        tls_alternative_names: Sequence[str] = (),
        open_paths: bool = True,
    ) -> Principal | None:
        """Find the principal of a request; None in anonymous mode. Raises `AuthenticationError` or `PermissionDenied`.

        `open_paths`: whether to return None also for a `path` that needs no key.
        """
        anyone = open_paths and path in self._open
        if self._others and not anyone:
            given: dict[str, str] = {}
            for name, value in headers:
                given.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
            request = Credentials(
                path=path,
                headers=given,
                tls_name=tls_name,
                tls_alternative_names=tls_alternative_names,
            )
            for other in self._others:
                if (found := await _ask(other, request)) is not None:
                    return found
        return None if anyone else self._of_key(headers)

    @property
    def needs_key(self) -> bool:
        """Whether requests need an API key or an authenticator that identifies their sender."""
        return self._needs_key

    def listed(self) -> Mapping[str, Sequence[KnownKey]]:
        """The API keys by name, including expired ones."""
        return self._by_name

    @property
    def several(self) -> bool:
        """Whether requests may come from principals of different names."""
        return self._more_keys or len(self._by_name) > 1

    def open_paths(self, paths: Iterable[str]) -> None:
        """Let anyone use `paths`, without a key."""
        self._open |= frozenset(paths)

    def tag(self, owner: str | None) -> str:
        """The owner's tag for engines: a keyed hash of the name. "" if there are no keys, or if all keys have the same
        name."""
        if not self.several:
            return ""
        name = "" if owner is None else f"={owner}"
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()[:32]

    def principal(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Principal | None:
        """The principal of the request's API key; None in anonymous mode or if `path` needs no key. Raises
        `AuthenticationError`."""
        return None if path in self._open else self._of_key(headers)

    def _of_key(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal | None:
        if not self._needs_key:
            return None
        given = _key_in(headers)
        if not given:
            raise AuthenticationError(
                "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'.",
                headers={"www-authenticate": "Bearer"},
            )
        found = self._by_digest.get(hash_key(given))
        if found is None:
            raise AuthenticationError(
                f"Incorrect API key provided.{_slip(given)}",
                headers={"www-authenticate": "Bearer"},
            )
        if found.expires <= self._clock():
            raise AuthenticationError(
                "This API key has expired. Ask for a new one.",
                headers={"www-authenticate": "Bearer"},
            )
        return found.principal

    def named(self, name: str | None) -> Principal | None:
        """The principal of that name, for background work; None if there is no API key of that name any more."""
        known = None if name is None else self._by_name.get(name)
        return known[0].principal if known else None

    def delegate(self, principal: Principal | None) -> Principal | None:
        """Return the current rights of `principal`, for requests that are sent on its behalf; None in anonymous mode.

        A principal found by an authenticator is returned unchanged. Raises `PermissionDenied` if the API key is no
        longer valid.
        """
        if principal is None:
            self._check_anonymous()
            return None
        if principal.key is None:
            return principal
        known = self._by_id.get(principal.key)
        if (
            known is None
            or known.expires <= self._clock()
            or known.principal.name != principal.name
        ):
            raise _revoked(principal.name)
        return known.principal

    def owner(self, name: str | None) -> Principal | None:
        """The principal of that name, for work of which only the owner's name is known.

        Raises `PermissionDenied` if there is no valid API key of that name, or several with different rights.
        """
        if name is None:
            self._check_anonymous()
            return None
        now = self._clock()
        valid = [each.principal for each in self._by_name.get(name, ()) if each.expires > now]
        if not valid:
            raise _revoked(name)
        if len({repr(msgspec.structs.replace(each, key=None)) for each in valid}) > 1:
            raise PermissionDenied(
                f"There are API keys of the name '{name}' with different rights, and it is not known which one began this.",
                code="api_key_ambiguous",
            )
        return valid[0]

    def _check_anonymous(self) -> None:
        if self._needs_key:
            raise PermissionDenied(
                "This was begun without an API key, and the server now needs one. Begin it again with a key.",
                code="api_key_required",
            )

    def require_admin(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise `PermissionDenied` unless the request's API key has `admin`. If no keys are needed, raise it unless
        the server listens on loopback."""
        principal = current_principal()
        if principal is not None:
            if principal.admin:
                return
            raise PermissionDenied(_NOT_ADMIN)
        if not self._needs_key:
            if self._local:
                return
            raise PermissionDenied(
                "Without API keys, only a server that listens on loopback allows this. Configure a key with admin = true in "
                "[[server.api_keys]]."
            )
        found = self._by_digest.get(hash_key(_key_in(headers)))
        if found is None or not found.principal.admin or found.expires <= self._clock():
            raise PermissionDenied(_NOT_ADMIN)


_NOT_ADMIN: Final = (
    "This API key may not do this: it is no admin key. One has admin = true in [[server.api_keys]], or was made with "
    "`gateway key add --admin`."
)


async def _ask(authenticator: RequestAuthenticator, request: Credentials) -> Principal | None:
    """The principal that an authenticator finds, or None. If the authenticator fails or takes too long, raise
    `GatewayError`."""
    try:
        async with asyncio.timeout(AUTHENTICATION_SECONDS):
            found = await authenticator.authenticate(request)
    except GatewayError:
        raise
    except Exception as error:
        # Do not ask the next authenticator: it might accept a request that this one would have refused.
        logger.exception("an authenticator failed")
        raise GatewayError(
            "The sender of this request cannot be authenticated now. Retry."
        ) from error
    if found is not None and not 0 < len(found.name) <= MAX_NAME:
        raise AuthenticationError(f"The name of a principal has 1 to {MAX_NAME} characters.")
    return found


def _unix_time(expires: datetime | None) -> float:
    if expires is None:
        return math.inf
    return (expires if expires.tzinfo else expires.replace(tzinfo=UTC)).timestamp()


def _slip(key: str) -> str:
    """A hint, preceded by a space, about a key that was apparently pasted wrongly; empty if nothing looks wrong."""
    if key.lower().startswith("bearer "):
        return " It begins with the word Bearer, which the client adds itself: set the key alone."
    if key.startswith("$"):
        return " It is the name of a variable, which the shell does not read in single quotes."
    if key[0] in "\"'<" or key[-1] in "\"'>":
        return " It has quotes or brackets around it: set the key alone."
    return ""


def _key_in(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return key.strip()
        if name == b"x-api-key":
            return value.decode("latin-1").strip()
    return ""
