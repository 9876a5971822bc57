"""From the configuration to a `MemoryStore`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from msgspec import Meta, Struct

from gateway import hookimpl
from gateway.hookspecs import OpenStore, Register
from gateway_memory.store import MemoryStore


class MemoryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[stores.memory]`."""

    max_responses: Annotated[int, Meta(ge=1)] = 10_000
    """The most responses that are kept; the one that was not used for longest goes first."""
    max_conversations: Annotated[int, Meta(ge=1)] = 10_000
    """The most conversations that are kept."""
    max_completions: Annotated[int, Meta(ge=1)] = 10_000
    """The most stored chat completions that are kept."""
    max_bytes: Annotated[int, Meta(ge=1)] = 256 * 1024 * 1024
    """The most bytes of all of these together, events included, counted as JSON."""
    ttl: Annotated[float, Meta(gt=0)] = 86_400.0
    """Seconds after which what nobody used is forgotten."""


@asynccontextmanager
async def open_memory(config: MemoryConfig) -> AsyncIterator[MemoryStore]:
    """An empty store; what it holds is gone when the context is left."""
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
