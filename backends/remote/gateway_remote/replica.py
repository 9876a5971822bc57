"""One replica of a model: what is known of it, and what it runs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from gateway_remote.breaker import Breaker
from gateway_remote.prefix import PrefixIndex

Outcome: TypeAlias = Literal["served", "failed", "busy", "abandoned"]
"""served: it answered, be it with a refusal; failed: it did not; busy: it asks to wait (429); abandoned: the client left,
or another replica was quicker."""

Status: TypeAlias = Literal["up", "busy", "half_open", "open", "down", "draining"]
"""up: it gets requests; busy: it has asked to wait; half_open, open: its breaker; down: the health checks gave it up;
draining: discovery names it no more."""


class Endpoint(Struct, frozen=True):
    """Where a replica is. `url` has neither path nor slash at its end, but a path that all its routes begin with."""

    url: str
    host: str | None = None
    """The name that it was found under, where `url` has the bare address: for the Host header and for TLS."""

    def __str__(self) -> str:
        return self.url


def endpoint(url: str) -> Endpoint:
    """The endpoint that a person wrote. Raises ValueError, with a phrase, for what is no http(s) address.

    A trailing `/v1` is taken off: the routes that are used do not all lie under it.
    """
    trimmed = url.strip().rstrip("/").removesuffix("/v1")
    parts = urlsplit(trimmed)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an address like http://host:8000")
    if parts.query or parts.fragment or parts.username:
        raise ValueError(f"{url!r} has more than a scheme, a host, a port and a path")
    _ = parts.port  # raises ValueError for one that is no number
    return Endpoint(trimmed)


def endpoint_at(name: Endpoint, address: str) -> Endpoint:
    """The endpoint of one of the addresses that `name`'s host resolves to."""
    parts = urlsplit(name.url)
    host = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
    where = host if parts.port is None else f"{host}:{parts.port}"
    return Endpoint(parts._replace(netloc=where).geturl(), parts.netloc)


class Totals(Struct):
    """What a replica has done since it became known."""

    requests: int = 0
    served: int = 0
    failed: int = 0
    busy: int = 0
    abandoned: int = 0
    broken: int = 0
    """Streams that failed after their first token."""
    ejections: int = 0
    returns: int = 0
    affine: int = 0
    """Requests that shared a prefix with what it had read."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Replica:
    """One replica. Everything here is plain state; the pool decides."""

    def __init__(
        self, where: Endpoint, *, breaker: Breaker, prefixes: PrefixIndex, limit: int | None
    ) -> None:
        self.endpoint = where
        self.breaker = breaker
        self.prefixes = prefixes
        self.limit = limit
        self.running = 0
        self.draining = False
        """Discovery names it no more: it ends what it runs, and is forgotten."""
        self.down: str | None = None
        """Why the health checks gave it up."""
        self.busy_until = 0.0
        self.totals = Totals()
        self.unbegun: set[Callable[[], None]] = set()
        """Each ends a request that has no token yet, so that it is tried elsewhere."""
        self._bad_checks = 0

    def __repr__(self) -> str:
        return f"<Replica {self.endpoint.url} running={self.running} down={self.down!r}>"

    @property
    def full(self) -> bool:
        return self.limit is not None and self.running >= self.limit

    def status(self, now: float) -> Status:
        """One word for people and metrics."""
        if self.draining:
            return "draining"
        if self.down is not None:
            return "down"
        state = self.breaker.state(now)
        if state != "closed":
            return state
        return "busy" if now < self.busy_until else "up"

    def check_passed(self, now: float) -> bool:
        """The health check was answered well; True if that brought the replica back."""
        self._bad_checks = 0
        if self.down is None:
            return False
        self.down = None
        self.breaker.half_open(now)
        self.totals.returns += 1
        self.prefixes.clear()
        return True

    def check_failed(self, reason: str, *, threshold: int) -> bool:
        """The health check went wrong; True if that was once too often and ejects the replica."""
        self._bad_checks += 1
        if self.down is not None:
            self.down = reason
            return False
        if self._bad_checks < threshold:
            return False
        self.down = reason
        self.totals.ejections += 1
        return True

    def give_back_unbegun(self) -> None:
        """End the requests that wait here for their first token; each goes to another replica."""
        for end in tuple(self.unbegun):
            end()
