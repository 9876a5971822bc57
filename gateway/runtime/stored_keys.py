"""API keys in the store, which `gateway key add` and `revoke` change while servers run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from gateway.config import ApiKey
from gateway.errors import ConfigurationError, StoreUnavailable
from gateway.protocols import ResponseStore, SharedValues
from gateway.runtime.access import Authenticator
from gateway.task_context import running_task

logger = logging.getLogger("gateway.runtime.stored_keys")

WATCH_SECONDS: Final = 0.4
"""Interval between looks into the store."""
SOURCE: Final = "the store"
_NAME: Final = "gateway:api_keys"
_LIFETIME: Final = 100 * 365 * 86_400.0
_ATTEMPTS: Final = 20


def check_holds_keys(store: ResponseStore) -> None:
    """Raise `ConfigurationError` if `gateway key add` could not reach the keys in `store`."""
    if not store.shared:
        raise ConfigurationError(
            "server.stored_keys needs a store that `gateway key add` can reach, unlike a server's own memory: choose another "
            "store, or use keys_file."
        )


async def read_stored_keys(store: SharedValues) -> list[ApiKey]:
    """The keys in the store. Raises `StoreUnavailable`, or `ConfigurationError` if a newer version has written them."""
    return _decoded(await store.get_value(_NAME))


async def change_stored_keys(
    store: SharedValues, change: Callable[[list[ApiKey]], Sequence[ApiKey]]
) -> None:
    """Replace the keys in the store by what `change` makes of them. Several processes may do so at the same time.

    Raises like `read_stored_keys`, and what `change` raises.
    """
    for _ in range(_ATTEMPTS):
        held = await store.get_value(_NAME)
        wanted = msgspec.json.encode(list(change(_decoded(held))))
        if wanted == held:
            return
        now = await store.compare_and_set(_NAME, wanted, expected=held, seconds=_LIFETIME)
        if now == wanted:
            return
        if now == held:
            raise ConfigurationError("The keys are too large for the store. Revoke some.")
    raise ConfigurationError("Other processes change the keys all the time. Try again.")


def _decoded(held: bytes | None) -> list[ApiKey]:
    if held is None:
        return []
    try:
        return msgspec.json.decode(held, type=list[ApiKey])
    except msgspec.DecodeError:
        raise ConfigurationError(
            "The keys in the store were written by another version of the gateway, and cannot be read."
        ) from None


class WatchedStoredKeys:
    """The keys in the store, read again all the time. While the store does not answer, they stay as they were."""

    def __init__(self, store: SharedValues, authenticator: Authenticator) -> None:
        self._store = store
        self._authenticator = authenticator
        self._held: bytes | None = None
        self._failing = False

    async def load(self) -> None:
        """Read the keys. Raises like `read_stored_keys`."""
        held = await self._store.get_value(_NAME)
        if held != self._held:
            self._authenticator.use_keys(SOURCE, _decoded(held))
            self._held = held

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """While entered, changes take effect."""
        async with running_task(self._watch()):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self.load()
                self._failing = False
            except (StoreUnavailable, ConfigurationError) as error:
                if not self._failing:
                    logger.warning("the keys of the store stay as they were: %s", error)
                self._failing = True
            except Exception:
                # Without this task, a revoked key would be accepted for ever.
                logger.exception("reading the keys of the store failed; it continues")
