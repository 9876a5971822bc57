"""State of one replica of a model."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from gateway_remote.breaker import Breaker
from gateway_remote.prefix import PrefixIndex

Outcome: TypeAlias = Literal["served", "failed", "busy", "abandoned"]
"""served: it responded, possibly with a rejection; failed: it did not; busy: it asked to wait (429); abandoned: the
client disconnected, or another replica was faster."""

Status: TypeAlias = Literal["up", "busy", "half_open", "open", "down", "draining"]
"""up: receives requests; busy: asked to wait; half_open, open: state of its breaker; down: ejected by health checks;
draining: no longer discovered."""


class Endpoint(Struct, frozen=True):
    """Address of a replica. `url` may have a path prefix, without a trailing slash."""

    url: str
    host: str | None = None
    """Host name for the Host header and TLS, if `url` has the IP address."""

    def __str__(self) -> str:
        return self.url


def endpoint(url: str) -> Endpoint:
    """Parse an address from the configuration. Raises ValueError with a phrase if it is not an http(s) address.

    A trailing `/v1` is removed, because not all routes are below it.
    """
    trimmed = url.strip().rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(trimmed)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is not an address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an address like http://host:8000")
    if parts.query or parts.fragment or parts.username:
        raise ValueError(f"{url!r} has more than a scheme, a host, a port and a path")
    return Endpoint(trimmed)


def endpoint_at(name: Endpoint, address: str) -> Endpoint:
    """The endpoint of one address that `name`'s host resolves to."""
    parts = urlsplit(name.url)
    host = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
    where = host if parts.port is None else f"{host}:{parts.port}"
    return Endpoint(parts._replace(netloc=where).geturl(), parts.netloc)


class Totals(Struct):
    """Counters of a replica since it was discovered."""

    requests: int = 0
    served: int = 0
    failed: int = 0
    busy: int = 0
    abandoned: int = 0
    broken: int = 0
    """Streams that failed after the first token."""
    ejections: int = 0
    returns: int = 0
    affine: int = 0
    """Requests that shared a prefix with earlier ones."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Replica:
    """State of one replica; the pool makes the decisions."""

    def __init__(
        self, where: Endpoint, *, breaker: Breaker, prefixes: PrefixIndex, limit: int | None
    ) -> None:
        self.endpoint = where
        self.breaker = breaker
        self.prefixes = prefixes
        self.limit = limit
        self.running = 0
        self.draining = False
        """No longer discovered: finishes its requests, then is removed."""
        self.down: str | None = None
        """Why the health checks ejected it; None if they did not."""
        self.busy_until = 0.0
        self.totals = Totals()
        self.waiting_for_first_token: set[Callable[[], None]] = set()
        """Callbacks that cancel requests without a token yet, so that they are retried elsewhere."""
        self._bad_checks = 0

    def __repr__(self) -> str:
        return f"<Replica {self.endpoint.url} running={self.running} down={self.down!r}>"

    @property
    def full(self) -> bool:
        return self.limit is not None and self.running >= self.limit

    def status(self, now: float) -> Status:
        """The status, for people and metrics."""
        if self.draining:
            return "draining"
        if self.down is not None:
            return "down"
        state = self.breaker.state(now)
        if state != "closed":
            return state
        return "busy" if now < self.busy_until else "up"

    def check_passed(self, now: float) -> bool:
        """Record a passed health check. Returns True if it brought the replica back."""
        self._bad_checks = 0
        if self.down is None:
            return False
        self.down = None
        self.breaker.half_open(now)
        self.totals.returns += 1
        self.prefixes.clear()
        return True

    def check_failed(self, reason: str, *, threshold: int) -> bool:
        """Record a failed health check. Returns True if it ejects the replica."""
        self._bad_checks += 1
        if self.down is not None:
            self.down = reason
            return False
        if self._bad_checks < threshold:
            return False
        self.down = reason
        self.totals.ejections += 1
        return True

    def cancel_waiting(self) -> None:
        """Cancel the requests that wait here for a first token; each is retried on another replica."""
        for end in tuple(self.waiting_for_first_token):
            end()
