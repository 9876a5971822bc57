"""Who may use the server: API keys, and whether it may be used without one."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Sequence

from gateway.config import ApiKey, ServerConfig
from gateway.errors import AuthenticationError, ConfigurationError

OPEN_PATHS = frozenset(("/health", "/ready", "/metrics"))
"""For load balancers and Prometheus: no key is asked for."""


def check_access(config: ServerConfig) -> None:
    """Refuse to serve strangers by accident: raises `ConfigurationError`."""
    if config.api_keys or config.allow_anonymous or is_loopback(config.host):
        return
    raise ConfigurationError(
        f"server.host is {config.host}, which other machines can reach, and there are no API keys: add some under "
        "[[server.api_keys]] (`gateway key NAME` makes one), or say allow_anonymous = true."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hash_key(key: str) -> str:
    """How a key stands in the configuration: SHA-256 in hexadecimal. Keys are long and random, so no slow hash is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


class Doorkeeper:
    """Tells whose request it is."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._keys = [(key.name, key.sha256.lower()) for key in keys]

    def owner(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """The name of the request's key; None in anonymous mode. Raises `AuthenticationError`."""
        if not self._keys or path in OPEN_PATHS:
            return None
        given = _given(headers)
        if not given:
            raise AuthenticationError(
                "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'.",
                headers={"www-authenticate": "Bearer"},
            )
        digest = hash_key(given)
        found: str | None = None
        for name, known in self._keys:  # all of them, always: how long it takes tells nothing
            if hmac.compare_digest(digest, known):
                found = name
        if found is None:
            raise AuthenticationError(
                "Incorrect API key provided.", headers={"www-authenticate": "Bearer"}
            )
        return found


def _given(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.decode("latin-1").partition(" ")
            if scheme.lower() == "bearer":
                return key.strip()
        if name == b"x-api-key":
            return value.decode("latin-1").strip()
    return ""
