"""Opens a `MemoryStore` from the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct

from gateway.sdk import OpenStore, Register, hookimpl
from gateway.sdk.configuration import Positive
from gateway_memory.store import MemoryStore


class MemoryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[stores.memory]`."""

    max_responses: Positive = 10_000
    """Maximum number of responses; the least recently used one is evicted first."""
    max_conversations: Positive = 10_000
    """Maximum number of conversations."""
    max_completions: Positive = 10_000
    """Maximum number of stored chat completions."""
    max_bytes: Positive = 256 * 1024 * 1024
    """Maximum size of all of these together, events included, in bytes of JSON."""
    ttl: Annotated[float, Meta(gt=0)] = 86_400.0
    """Seconds without use after which an entry is evicted."""


@asynccontextmanager
async def open_memory(config: MemoryConfig) -> AsyncIterator[MemoryStore]:
    """An empty store. Its contents are lost when the context is left."""
    yield MemoryStore(
        max_responses=config.max_responses,
        max_conversations=config.max_conversations,
        max_completions=config.max_completions,
        max_bytes=config.max_bytes,
        ttl=config.ttl,
    )


@hookimpl
def gateway_register_stores(register: Register[OpenStore]) -> None:
    register(
        "memory",
        open_memory,
        config=MemoryConfig,
        summary="in this process, bounded by time and size; gone when the server stops",
    )
