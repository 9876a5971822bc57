"""Keys in the store: what servers read of them, and keys of other releases."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.access import Authenticator, hash_key
from gateway.access.stored_keys import (
    StoredKey,
    UnreadableKey,
    WatchedStoredKeys,
    change_stored_keys,
    read_stored_keys,
)
from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.config import ApiKey

KEYS = "gateway:api_keys"


class Values:
    """Shared values in memory, that count the bytes that are read of them."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.read = 0
        self.fails_at: int | None = None
        """The number of the operation from which on none is answered."""
        self.operations = 0

    def _count(self) -> None:
        self.operations += 1
        if self.fails_at is not None and self.operations >= self.fails_at:
            raise StoreUnavailable("away")

    async def compare_and_set(
        self, name: str, value: bytes, *, expected: bytes | None, seconds: float, owner: Any = None
    ) -> bytes | None:
        self._count()
        await asyncio.sleep(0)
        if self.held.get(name) == expected:
            self.held[name] = value
        return self.held.get(name)

    async def get_value(self, name: str, *, owner: Any = None) -> bytes | None:
        self._count()
        await asyncio.sleep(0)
        found = self.held.get(name)
        self.read += len(found or b"")
        return found


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def key(name: str, **more: Any) -> ApiKey:
    return ApiKey(name=name, sha256=hash_key(name), **more)


async def add(store: Values, *keys: StoredKey) -> None:
    await change_stored_keys(store, lambda held: [*held, *keys])


def accepted(authenticator: Authenticator, name: str) -> bool:
    return hash_key(name) in authenticator._by_digest


def watched(store: Values) -> tuple[WatchedStoredKeys, Authenticator, Clock]:
    authenticator, clock = Authenticator([], more_keys=True), Clock()
    return WatchedStoredKeys(store, authenticator, clock), authenticator, clock


@pytest.mark.anyio
async def test_keys_that_have_not_changed_are_not_read_again() -> None:
    store = Values()
    await add(store, *(key(f"key {number}") for number in range(1000)))
    keys, authenticator, _ = watched(store)
    await keys.load()
    assert accepted(authenticator, "key 7")
    store.read = 0
    for _ in range(50):
        await keys.load()
    assert store.read < 50 * 64
    await change_stored_keys(store, lambda held: [each for each in held if each.name != "key 7"])
    await keys.load()
    assert not accepted(authenticator, "key 7")
    assert accepted(authenticator, "key 8")


@pytest.mark.anyio
async def test_keys_of_an_older_release_s_command_are_seen_within_half_a_minute() -> None:
    store = Values()
    await add(store, key("a"))
    keys, authenticator, clock = watched(store)
    await keys.load()
    store.held[KEYS] = msgspec.json.encode([key("b")])
    clock.now = 31
    await keys.load()
    assert accepted(authenticator, "b")
    assert not accepted(authenticator, "a")


@pytest.mark.anyio
async def test_without_a_version_all_is_read() -> None:
    store = Values()
    store.held[KEYS] = msgspec.json.encode([key("a")])
    keys, authenticator, _ = watched(store)
    await keys.load()
    store.held[KEYS] = msgspec.json.encode([])
    await keys.load()
    assert not accepted(authenticator, "a")


@pytest.mark.parametrize("operations", range(1, 8))
@pytest.mark.anyio
async def test_wherever_a_command_is_killed_a_server_sees_what_it_has_changed(
    operations: int,
) -> None:
    store = Values()
    await add(store, key("a"))
    keys, authenticator, _ = watched(store)
    await keys.load()
    store.operations, store.fails_at = 0, operations
    with suppress(StoreUnavailable):
        await change_stored_keys(store, lambda held: [])
    store.fails_at = None
    await keys.load()
    assert accepted(authenticator, "a") == (store.held[KEYS] != b"[]")


@given(data=st.data())
def test_whatever_the_order_of_changes_and_looks_the_last_keys_are_used(
    data: st.DataObject,
) -> None:
    """Of several commands at once and a server that looks all the time, step by step in any order."""

    async def run() -> None:
        store = Values()
        keys, authenticator, _ = watched(store)
        names = [f"k{number}" for number in range(3)]

        async def looks() -> None:
            for _ in range(6):
                await keys.load()

        steps = [add(store, key(name)).__await__() for name in names]
        steps.append(looks().__await__())
        try:
            while steps:
                chosen = data.draw(st.integers(0, len(steps) - 1))
                try:
                    waiting = next(steps[chosen])
                except StopIteration:
                    del steps[chosen]
                    continue
                if waiting is not None:  # a thread's work
                    await asyncio.wait([waiting])
        finally:
            # Hypothesis may end an example early, and a coroutine that is thrown away in its middle warns.
            for each in steps:
                for waiting in each:
                    if waiting is not None:
                        await asyncio.wait([waiting])
        await keys.load()
        assert all(accepted(authenticator, name) for name in names)

    asyncio.run(run())


def unknown(name: str) -> bytes:
    found = {"name": name, "sha256": hash_key(name), "networks": ["10.0.0.0/8"]}
    return msgspec.json.encode(found)


@pytest.mark.anyio
async def test_a_key_of_a_newer_release_is_refused_and_kept_and_the_others_are_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Values()
    store.held[KEYS] = b"[" + msgspec.json.encode(key("a")) + b"," + unknown("new") + b"]"
    keys, authenticator, _ = watched(store)
    with caplog.at_level(logging.WARNING):
        await keys.load()
    assert accepted(authenticator, "a")
    assert not accepted(authenticator, "new")
    assert "refused: new" in caplog.text
    await add(store, key("b"))
    assert unknown("new") in store.held[KEYS]
    found = await read_stored_keys(store)
    assert [(each.name, type(each)) for each in found] == [
        ("a", ApiKey), ("new", UnreadableKey), ("b", ApiKey),
    ]  # fmt: skip
    await change_stored_keys(store, lambda held: [each for each in held if each != found[1]])
    assert b"new" not in store.held[KEYS]


@pytest.mark.parametrize("held", [b"{}", b"no JSON", b"[1]", b'[{"name": "a"}]'])
@pytest.mark.anyio
async def test_what_is_no_list_of_keys_changes_nothing(held: bytes) -> None:
    store = Values()
    store.held[KEYS] = held
    with pytest.raises(ConfigurationError, match="another version"):
        await read_stored_keys(store)
    with pytest.raises(ConfigurationError):
        await add(store, key("a"))
    assert store.held[KEYS] == held
