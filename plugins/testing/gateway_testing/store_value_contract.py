"""The contract of stores for shared values."""

from __future__ import annotations

import asyncio
import uuid

from gateway.plugins.protocols import ResponseStore


class ValueContract:
    """Values that are set once, and changed by compare-and-set."""

    async def test_a_value_is_set_only_if_it_is_as_expected(self, store: ResponseStore) -> None:
        name = uuid.uuid4().hex

        async def set_(value: bytes, expected: bytes | None) -> bytes | None:
            return await store.compare_and_set(name, value, expected=expected, seconds=60)

        assert await store.get_value(name) is None
        assert await set_(b"new", b"old") is None
        assert await set_(b"1\x00\xff", None) == b"1\x00\xff"
        assert await set_(b"2", None) == b"1\x00\xff"
        assert await set_(b"2", b"other") == b"1\x00\xff"
        assert await set_(b"2", b"1\x00\xff") == b"2"
        assert await store.get_value(name) == b"2"

    async def test_one_of_many_claims_a_value(self, store: ResponseStore) -> None:
        name = uuid.uuid4().hex
        wishes = [str(number).encode() for number in range(50)]
        held = await asyncio.gather(
            *(store.compare_and_set(name, wish, expected=None, seconds=60) for wish in wishes)
        )
        assert len(set(held)) == 1
        assert sum(value == wish for value, wish in zip(held, wishes, strict=True)) == 1

    async def test_a_value_is_its_owners_alone(self, store: ResponseStore) -> None:
        name = uuid.uuid4().hex
        for owner in ("ada", "bob", None, ""):
            assert await store.get_value(name, owner=owner) is None
            value = repr(owner).encode()
            found = await store.compare_and_set(name, value, expected=None, seconds=60, owner=owner)
            assert found == value
        for owner in ("ada", "bob", None, ""):
            assert await store.get_value(name, owner=owner) == repr(owner).encode()

    async def test_a_value_goes_when_its_time_is_over(self, store: ResponseStore) -> None:
        name = uuid.uuid4().hex
        assert await store.compare_and_set(name, b"1", expected=None, seconds=0.05) == b"1"
        await asyncio.sleep(0.2)
        assert await store.get_value(name) is None
        assert await store.compare_and_set(name, b"2", expected=b"1", seconds=60) is None
        assert await store.compare_and_set(name, b"2", expected=None, seconds=60) == b"2"

    async def test_the_values_of_an_owner_are_bounded(self, store: ResponseStore) -> None:
        """A value that exceeds the limit is not set, and changes nothing. Small values and other owners are not
        affected."""
        owner, other = uuid.uuid4().hex, uuid.uuid4().hex
        large, kept = b"x" * (4 << 20), 0
        while kept < 100:
            name = f"large-{kept}"
            held = await store.compare_and_set(name, large, expected=None, seconds=60, owner=owner)
            if held is None:
                break
            kept += 1
        assert 0 < kept < 100, "there is a bound, and it is not this one value"
        assert await store.get_value("large-0", owner=owner) == large
        for name, who in (("small", owner), ("large-0", other)):
            value = b"1" if who == owner else large
            held = await store.compare_and_set(name, value, expected=None, seconds=60, owner=who)
            assert held == value
