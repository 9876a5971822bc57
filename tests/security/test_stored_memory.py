"""What requests that come together keep in memory is counted, and stays within the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.answers.responses.background import BackgroundRuns
from gateway.base.errors import RateLimited
from gateway.plugins.protocols import StoredResponse
from gateway.wire.items import Item
from gateway.wire.response import Conversation
from gateway_memory import MemoryStore
from gateway_testing.store_records import message, record
from tests.clock import Clock

pytestmark = pytest.mark.anyio

SIZE = 100_000
"""More characters than a store reads on the event loop."""


def texts_of(items: Iterable[Item]) -> list[str]:
    return [part.text for item in items for part in item.content]  # type: ignore[union-attr]


def fresh(character: str) -> str:
    """A string that is an object of its own, as each request's is."""
    return "".join([character] * SIZE)


async def test_equal_texts_of_one_call_are_kept_once() -> None:
    store = MemoryStore()
    await store.put_conversation(Conversation(id="conv_1", created_at=1))
    given = [message("user", fresh("x")) for _ in range(20)]
    assert len({id(text) for text in texts_of(given)}) == 20
    await store.append_items("conv_1", given)
    page = await store.list_items("conv_1", limit=100)
    assert page is not None
    assert len(page.items) == 20
    assert len({id(text) for text in texts_of(page.items)}) == 1, "they are counted as one"


async def test_equal_texts_of_calls_at_once_are_kept_once() -> None:
    store = MemoryStore()
    given = [record(output=[message("assistant", fresh("y"))]) for _ in range(20)]
    await asyncio.gather(*(store.put(each) for each in given))
    found = [await store.get(each.id) for each in given]
    kept = [text for each in found if each for text in texts_of(each.response.output)]
    assert len(kept) == 20
    assert len({id(text) for text in kept}) == 1, "they are counted as one"
    for each in given:
        await store.delete(each.id)
    assert store.size == 0


async def test_an_item_of_which_one_response_has_expired_is_found_in_the_other() -> None:
    clock = Clock()
    store = MemoryStore(ttl=100, clock=clock)
    item = message("user", "hi")
    used, left = record(input_=[item]), record(input_=[item])
    await store.put(used)
    clock.now += 10
    await store.put(left)
    clock.now += 50
    assert await store.get(used.id) is not None
    clock.now += 51
    assert await store.find_items([item.id]) == {item.id: item}


class _Run:
    """What starting a background run reads of it."""

    def __init__(self, stored: StoredResponse) -> None:
        self.response = stored.response
        self.output: Any = self
        self.plan: Any = self
        self.settings: Any = self
        self.scope: Any = self
        self.size = SIZE
        self.owner = "ada"
        self._stored = stored

    def record(self) -> StoredResponse:
        return self._stored

    def abandon(self) -> None:
        pass


async def test_background_requests_at_once_do_not_pass_their_owners_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background = BackgroundRuns(MemoryStore(), lease_seconds=60, max_bytes=2 * SIZE)

    def begin(run: Any) -> None:
        background._running[run.output.response.id] = SimpleNamespace(run=run)  # type: ignore[assignment]

    monkeypatch.setattr(background, "_begin", begin)
    runs: list[Any] = [
        _Run(record(output=[message("assistant", fresh(character))])) for character in "abcdefgh"
    ]
    results = await asyncio.gather(*(background.start(run) for run in runs), return_exceptions=True)
    assert len(background._running) == 2
    assert sum(isinstance(each, RateLimited) for each in results) == 6
