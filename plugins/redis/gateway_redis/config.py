"""Configuration of the store."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive, Seconds


class RedisConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[stores.redis]`."""

    url: Annotated[str, Meta(min_length=1)] = "redis://127.0.0.1:6379/0"
    """Redis address: `redis://`, `rediss://` (TLS) or `unix://`; `redis+sentinel://host:port,host:port/service`;
    `redis+cluster://host:port,host:port`; `rediss+…` for TLS there. Connection options (`ssl_ca_certs`, …) follow
    as a query."""
    username: str | None = None
    """User name; overrides the one in the URL."""
    password: str | None = None
    """Password; overrides the one in the URL."""
    password_file: Annotated[str, Meta(min_length=1)] | None = None
    """File with the password, read for each connection: a new one is used without a restart. Overrides the others."""
    prefix: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.:-]+\Z")] = "litegate"
    """Prefix of all keys. Gateways with the same prefix share what they store."""
    ttl: Seconds = 30 * 86_400.0
    """Seconds after which unused data expires. A response counts from its end, or from the last response that
    continued it."""
    max_responses: Positive = 1_000_000
    """Maximum number of finished responses. If this or one of the next three bounds is exceeded, the oldest entries
    of the owner with the highest usage are evicted."""
    max_completions: Positive = 1_000_000
    """Maximum number of stored chat completions."""
    max_conversations: Positive = 1_000_000
    """Maximum number of conversations."""
    max_bytes: Positive | None = None
    """Maximum size of all of these together, in bytes. Default: three fifths of Redis' `maxmemory`, or 8 GiB if it
    has none."""
    connect_timeout: Seconds = 2.0
    """Seconds to establish a connection."""
    timeout: Seconds = 5.0
    """Seconds that a command may take in all, with retries and the wait for a connection. If Redis hangs, a request is
    refused after this time."""
    outage: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds of Redis downtime that a running background response survives."""
    max_connections: Positive = 64
    """Maximum number of connections per process (in a cluster, per node), without the two that perform blocking
    reads."""
