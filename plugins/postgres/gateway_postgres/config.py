"""Configuration of the store."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk.configuration import Positive, Seconds


class PostgresConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[stores.postgres]`."""

    url: Annotated[str, Meta(min_length=1)] = "postgresql://127.0.0.1:5432/litegate"
    """Address of the database: `postgresql://user@host:port/database`, with options such as `?sslmode=verify-full`.
    `PGUSER`, `PGPASSWORD` and libpq's other variables give what it leaves out."""
    username: str | None = None
    """User name; overrides the one in the URL."""
    password: str | None = None
    """Password; overrides the one in the URL."""
    password_file: Annotated[str, Meta(min_length=1)] | None = None
    """File with the password, read for each connection: a new one is used without a restart. Overrides the others."""
    schema: Annotated[str, Meta(pattern=r"\A[a-z_][a-z0-9_]{0,40}\Z")] = "litegate"
    """Schema of all tables, which is created if it is missing. Gateways with the same schema share what they store."""
    ttl: Seconds = 30 * 86_400.0
    """Seconds without use after which an entry is removed."""
    max_responses: Positive = 1_000_000
    """Maximum number of responses. If this or one of the next three bounds is exceeded, the least recently used entries
    of the owner with the highest usage are removed."""
    max_conversations: Positive = 1_000_000
    """Maximum number of conversations."""
    max_completions: Positive = 1_000_000
    """Maximum number of stored chat completions."""
    max_bytes: Positive = 32 << 30
    """Maximum size of all of these together, events included, in bytes."""
    connect_timeout: Seconds = 5.0
    """Seconds to establish a connection."""
    timeout: Seconds = 10.0
    """Seconds to wait for an answer of the database, or for a free connection."""
    outage: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds without the database that a running background response survives."""
    max_connections: Annotated[int, Meta(ge=1, le=1000)] = 8
    """Maximum number of connections per process, without the one that listens for notifications."""
