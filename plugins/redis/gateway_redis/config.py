"""The configuration of the store."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]


class RedisConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[stores.redis]`."""

    url: Annotated[str, Meta(min_length=1)] = "redis://127.0.0.1:6379/0"
    """Where Redis is: `redis://`, `rediss://` (TLS) or `unix://`; `redis+sentinel://host:port,host:port/service`;
    `redis+cluster://host:port,host:port`; `rediss+…` for TLS there. Options of the connection (`ssl_ca_certs`, …) follow
    as a query."""
    username: str | None = None
    """The user; comes before one in the URL."""
    password: str | None = None
    """The password; comes before one in the URL."""
    prefix: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.:-]+\Z")] = "litegate"
    """What all keys begin with: gateways with one prefix share what they store."""
    ttl: Seconds = 30 * 86_400.0
    """Seconds after which what nobody used is forgotten: from a response's end, or the last that continued it."""
    max_responses: Annotated[int, Meta(ge=1)] = 1_000_000
    """The most finished responses; the oldest go first."""
    max_completions: Annotated[int, Meta(ge=1)] = 1_000_000
    """The most stored chat completions; the oldest go first."""
    connect_timeout: Seconds = 2.0
    """Seconds in which a connection must be made."""
    timeout: Seconds = 5.0
    """Seconds in which Redis must answer."""
    outage: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds of absence of Redis that a running background response outlives."""
    max_connections: Annotated[int, Meta(ge=1)] = 64
    """The most connections of a process, but for the two that wait for news; in a cluster, to each node."""
