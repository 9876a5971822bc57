"""Access control: API keys and anonymous access."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Sequence

from gateway.config import ApiKey, ServerConfig
from gateway.errors import AuthenticationError, ConfigurationError, PermissionDenied

_PROBES = frozenset(("/health", "/ready"))
"""Health endpoints for load balancers; they need no key."""


def check_access(config: ServerConfig) -> None:
    """Raise `ConfigurationError` if the server would be open to the network without keys by accident."""
    if config.api_keys or config.allow_anonymous or is_loopback(config.host):
        return
    raise ConfigurationError(
        f"server.host is {config.host}, which other machines can reach, and there are no API keys: add some under "
        "[[server.api_keys]] (`gateway key NAME` makes one), or set allow_anonymous = true."
    )


def is_loopback(host: str) -> bool:
    """Whether `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hash_key(key: str) -> str:
    """The form of a key in the configuration: SHA-256 in hexadecimal. Keys are long and random, so no slow hash is
    needed."""
    return hashlib.sha256(key.encode()).hexdigest()


class Authenticator:
    """Maps a request to the owner of its API key."""

    def __init__(
        self, keys: Sequence[ApiKey], *, open_metrics: bool = True, local: bool = False
    ) -> None:
        """`open_metrics`: whether `/metrics` is accessible without a key. `local`: whether the server listens on loopback."""
        self._open = _PROBES | {"/metrics"} if open_metrics else _PROBES
        self._keys = [(key.name, key.sha256.lower()) for key in keys]
        self._admins = [key.sha256.lower() for key in keys if key.admin]
        self._local = local
        self._shared = len({key.name for key in keys}) > 1
        # Replicas with the same keys compute the same tags, so that an owner's cached prefixes are shared between them.
        secret = hashlib.sha256("".join(sorted(digest for _, digest in self._keys)).encode())
        self._secret = secret.digest()

    def tag(self, owner: str | None) -> str:
        """The owner's tag for engines: a keyed hash of the name. "" if there are no keys, or all keys have the same
        name."""
        if not self._shared:
            return ""
        name = "" if owner is None else f"={owner}"
        return hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()[:32]

    def owner(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The name of the request's key; None in anonymous mode. Raises `AuthenticationError`."""
        if not self._keys or path in self._open:
            return None
        given = _given(headers)
        if not given:
            raise AuthenticationError(
                "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'.",
                headers={"www-authenticate": "Bearer"},
            )
        digest = hash_key(given)
        found: str | None = None
        for name, known in self._keys:  # always compare all keys: constant time
            if hmac.compare_digest(digest, known):
                found = name
        if found is None:
            raise AuthenticationError(
                "Incorrect API key provided.", headers={"www-authenticate": "Bearer"}
            )
        return found

    def require_admin(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise `PermissionDenied` unless the request's key is one with `admin`. Without keys, unless the server listens on
        loopback."""
        if not self._keys:
            if self._local:
                return
            raise PermissionDenied(
                "Without API keys, only a server that listens on loopback allows this. Configure a key with admin = true in "
                "[[server.api_keys]]."
            )
        digest = hash_key(_given(headers))
        found = False
        for known in self._admins:  # always compare all keys: constant time
            found |= hmac.compare_digest(digest, known)
        if not found:
            raise PermissionDenied(
                "This API key may not do this: it needs admin = true in [[server.api_keys]]."
            )


def _given(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return key.strip()
        if name == b"x-api-key":
            return value.decode("latin-1").strip()
    return ""
