"""The contract of stores that keep entries after the process has ended, and of bounded stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import pytest

from gateway.plugins.protocols import ResponseStore
from gateway.wire.response import Conversation
from gateway_testing.closing_contract import ClosingContract, Reopen
from gateway_testing.store_records import message, record

OpenStoreOf = Callable[[int], AbstractAsyncContextManager[ResponseStore]]


class LastingContract(ClosingContract):
    """Provide the fixtures `reopen` and `open_bounded` to run these tests.

    `reopen` opens the same store again, with the entries that it has kept. Leave it out for a store that does not keep
    entries when the gateway stops.
    """

    @pytest.fixture
    def open_bounded(self) -> OpenStoreOf | None:
        """A function that opens an empty store with a maximum number of responses. If None, bounds are not tested."""
        return None

    async def use_once(self, opened: Any) -> None:
        await opened.put(record())
        await opened.health()

    async def test_what_is_stored_is_there_when_it_is_opened_again(
        self, reopen: Reopen | None
    ) -> None:
        if reopen is None:
            pytest.skip("give the fixture `reopen` if the store keeps what it has")
        root = record(owner="ada", output=[message("assistant", "kept")])
        child = record(owner="ada", previous_response_id=root.id)
        running = record(status="in_progress", streamed=True)
        conversation = Conversation(id=f"conv_{root.id}", created_at=1)
        async with reopen() as store:
            await store.put(root)
            await store.put(child)
            await store.put(running)
            await store.append_events(running.id, [b"0", b"1"])
            await store.put_conversation(conversation)
            await store.append_items(conversation.id, [message("user", "x")])
            await store.compare_and_set(root.id, b"1", expected=None, seconds=600)
        async with reopen() as store:
            history = await store.history(child.id, owner="ada")
            assert history is not None, "the responses are lost"
            assert len(history) == 3
            assert await store.get(root.id, owner="eve") is None
            assert await store.count_events(running.id) == 2, "the events are lost"
            assert await store.append_events(running.id, [b"2"], last=True)
            async with aclosing(store.read_events(running.id)) as log:
                events = [event async for batch in log for event in batch]
            assert events == [b"0", b"1", b"2"]
            page = await store.list_items(conversation.id)
            assert page is not None, "the conversation is lost"
            assert len(page.items) == 1
            assert await store.get_value(root.id) == b"1", "the values are lost"

    async def test_the_oldest_go_first_past_a_bound(self, open_bounded: OpenStoreOf | None) -> None:
        """Bounds may be enforced shortly after they are exceeded."""
        if open_bounded is None:
            pytest.skip("give the fixture `open_bounded` to test bounds")
        async with open_bounded(10) as store:
            kept = [record(output=[message("assistant", "x")]) for _ in range(60)]
            for each in kept:
                await store.put(each)
            there = await self._bounded(store, [each.id for each in kept])
        assert there, "nothing is kept"
        assert there == [each.id for each in kept][-len(there) :], "it is not the oldest that went"

    async def _bounded(self, store: ResponseStore, ids: list[str]) -> list[str]:
        """Wait until the store has no more responses than its bound. Returns the ids that are kept."""
        there = ids
        try:
            async with asyncio.timeout(self.close_seconds):
                while len(there) > 10:
                    await asyncio.sleep(0.02)
                    # Reading a response counts as use, so the most recently used ones are read
                    # last.
                    there = [each for each in ids if await store.get(each) is not None]
        except TimeoutError:
            raise AssertionError(f"{len(there)} are kept where the bound is 10") from None
        return there
