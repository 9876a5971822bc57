"""API keys in the store, which `gateway key add`, `set` and `revoke` change while servers run.

All keys are stored as one value. A second, small value contains their version, so that servers detect changes without
reading all keys.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from gateway.access.access import Authenticator, known_keys
from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.base.task_context import running_task
from gateway.config import ApiKey
from gateway.plugins.protocols import ResponseStore, SharedValues

logger = logging.getLogger("gateway.access.stored_keys")

WATCH_SECONDS: Final = 0.4
"""Interval between checks of the store, in seconds."""
SOURCE: Final = "the store"
_NAME: Final = "gateway:api_keys"
_VERSION: Final = "gateway:api_keys:version"
_CHANGING: Final = b"changing "
"""Prefix of the version while a command changes the keys. It remains if the command is killed. While it is set, servers
read all keys at each check."""
_FULL_SECONDS: Final = 30.0
"""Interval at which the keys are read even if their version has not changed, in seconds: the commands of older releases
write no version."""
_LIFETIME: Final = 100 * 365 * 86_400.0
_ATTEMPTS: Final = 20


KEYS_NOT_HELD: Final = (
    "server.stored_keys needs a store that `gateway key add` can reach, unlike a server's own memory: choose another store, or "
    "use keys_file."
)


def check_holds_keys(store: ResponseStore) -> None:
    """Raise `ConfigurationError` if `gateway key add` could not reach the keys in `store`."""
    if not store.shared:
        raise ConfigurationError(KEYS_NOT_HELD)


class UnreadableKey(Struct, frozen=True):
    """A key with settings that this release does not know. It is refused, because the settings may restrict it."""

    name: str
    sha256: str
    raw: msgspec.Raw = msgspec.Raw(b"")
    """The stored JSON, which is written back unchanged."""


StoredKey: TypeAlias = ApiKey | UnreadableKey


async def read_stored_keys(store: SharedValues) -> list[StoredKey]:
    """Read the keys in the store. Raises `StoreUnavailable`, or `ConfigurationError` if another version of the
    gateway wrote them in an unreadable form."""
    return _decoded(await store.get_value(_NAME))


async def change_stored_keys(
    store: SharedValues, change: Callable[[list[StoredKey]], Sequence[StoredKey]]
) -> None:
    """Replace the keys in the store by the result of `change`, which may be called several times. Several processes
    may call this concurrently.

    Raises the same errors as `read_stored_keys`, those of `change`, and `ConfigurationError` if the store does not
    accept the keys.
    """
    mark = _CHANGING + secrets.token_hex(8).encode()
    await _set_version(store, mark, lambda _: True)
    try:
        await _change(store, change)
    finally:
        # If another process is changing the keys now, leave the version to it.
        done = secrets.token_hex(8).encode()
        await _set_version(
            store, done, lambda held: held == mark or not (held or b"").startswith(_CHANGING)
        )


async def _change(
    store: SharedValues, change: Callable[[list[StoredKey]], Sequence[StoredKey]]
) -> None:
    for _ in range(_ATTEMPTS):
        held = await store.get_value(_NAME)
        wanted = _encoded(change(_decoded(held)))
        if wanted == held:
            return
        now = await store.compare_and_set(_NAME, wanted, expected=held, seconds=_LIFETIME)
        if now == wanted:
            return
        if now == held:
            raise ConfigurationError("The keys are too large for the store. Revoke some.")
    raise ConfigurationError("Other processes change the keys all the time. Try again.")


async def _set_version(
    store: SharedValues, version: bytes, replaces: Callable[[bytes | None], bool]
) -> None:
    """Set the version if `replaces`, called with the present version, returns True. Other processes may do the same
    concurrently."""
    for _ in range(_ATTEMPTS):
        held = await store.get_value(_VERSION)
        if not replaces(held):
            return
        now = await store.compare_and_set(_VERSION, version, expected=held, seconds=_LIFETIME)
        if now == version:
            return


def _encoded(keys: Sequence[StoredKey]) -> bytes:
    return msgspec.json.encode([key.raw if isinstance(key, UnreadableKey) else key for key in keys])


def _decoded(held: bytes | None) -> list[StoredKey]:
    if held is None:
        return []
    try:
        return [*msgspec.json.decode(held, type=list[ApiKey])]
    except msgspec.DecodeError:
        pass
    try:
        return [_key(raw) for raw in msgspec.json.decode(held, type=list[msgspec.Raw])]
    except msgspec.DecodeError:
        raise ConfigurationError(
            "The keys in the store were written by another version of the gateway, and cannot be read."
        ) from None


def _key(raw: msgspec.Raw) -> StoredKey:
    try:
        return msgspec.json.decode(raw, type=ApiKey)
    except msgspec.ValidationError:
        found = msgspec.json.decode(raw, type=UnreadableKey)
        return msgspec.structs.replace(found, raw=raw.copy())


def readable(keys: Sequence[StoredKey]) -> list[ApiKey]:
    """The keys that this release can read. Logs the names of the others."""
    refused = [key.name for key in keys if isinstance(key, UnreadableKey)]
    if refused:
        logger.warning(
            "%d keys of the store have settings that this release does not know, and are refused: %s",
            len(refused), ", ".join(refused[:_MOST_NAMED]) + (", …" if len(refused) > _MOST_NAMED else ""),
        )  # fmt: skip
    return [key for key in keys if isinstance(key, ApiKey)]


_MOST_NAMED: Final = 10


class WatchedStoredKeys:
    """The keys in the store, read again when they change. While the store does not answer, the last keys stay in
    use."""

    def __init__(
        self,
        store: SharedValues,
        authenticator: Authenticator,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._authenticator = authenticator
        self._clock = clock
        self._held: bytes | None = None
        self._version: bytes | None = None
        """The version that the store had before the keys were read."""
        self._read_at = -_FULL_SECONDS
        self._failing = False

    async def load(self) -> None:
        """Read the keys if they may have changed. Raises the same errors as `read_stored_keys`."""
        version = await self._store.get_value(_VERSION)
        settled = version is not None and not version.startswith(_CHANGING)
        if settled and version == self._version and self._clock() - self._read_at < _FULL_SECONDS:
            return
        began = self._clock()
        held = await self._store.get_value(_NAME)
        if held != self._held:
            keys = await asyncio.to_thread(_decoded, held)
            known = await asyncio.to_thread(known_keys, SOURCE, readable(keys))
            self._authenticator.use_known(SOURCE, known)
            self._held = held
        self._version, self._read_at = version, began

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Check the store for changed keys while the context is entered."""
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
                # The task must go on: without it, a revoked key would be accepted forever.
                logger.exception("reading the keys of the store failed; it continues")
