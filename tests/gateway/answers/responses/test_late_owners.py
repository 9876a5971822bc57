"""A process that stands still at any call of the store, and goes on when another one has taken its response over, changes nothing.

Its lease has expired by a simulated clock. It stops before the call or after it, when the store has answered and nobody has read that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

import gateway_chat_template
import gateway_parsers
import gateway_scripted
from gateway import hookimpl
from gateway.answers.responses.answer import response_answer
from gateway.answers.responses.background import BackgroundRuns
from gateway.answers.responses.plan import make_plan
from gateway.answers.responses.rerun import keep_body, recreate_run
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import UNFINISHED
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode
from gateway.wire.request import decode_response_request
from gateway.wire.response import Conversation
from gateway_memory.store import MemoryStore
from gateway_testing.grammar import fold
from tests.clock import Clock
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PLUGINS = [gateway_chat_template, gateway_parsers, gateway_scripted]
CONVERSATION = Conversation(id="conv_1", created_at=1)
COUNTED = {"lease", "put", "advance", "append_events", "append_items", "release"}
"""What a run calls of its store. That of the search and of the heartbeat is counted by nobody: they wait while the process stands still."""
MOST = 12
"""More calls than a run makes before its end."""


class SlowStore:
    """A store as one process sees it, which stands still at a call until `wake`."""

    def __init__(
        self, store: MemoryStore, at: int | None = None, *, answered: bool = False
    ) -> None:
        self._store = store
        self._left = at
        self._answered = answered
        self.reached = asyncio.Event()
        self._awake = asyncio.Event()

    def wake(self) -> None:
        self._awake.set()

    async def _stand_still(self) -> None:
        if self.reached.is_set():
            await self._awake.wait()

    def __getattr__(self, name: str) -> Any:
        if name == "open_log":  # or its writes would not be awaited, and nobody could stand still
            raise AttributeError(name)
        found = getattr(self._store, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            await self._stand_still()
            stops = False
            if name in COUNTED and self._left is not None:
                stops, self._left = self._left == 0, self._left - 1
            if stops and not self._answered:
                self.reached.set()
                await self._awake.wait()
            answer = await found(*arguments, **options)
            if stops and self._answered:
                self.reached.set()
                await self._awake.wait()
            return answer

        return call


@asynccontextmanager
async def process(store: SlowStore, words: str) -> AsyncIterator[tuple[Services, BackgroundRuns]]:
    """The services of a process with that store, whose model says `words`, and its background responses."""

    class Stores:
        @asynccontextmanager
        async def open(self, config: Any) -> AsyncIterator[SlowStore]:
            yield store

        @hookimpl
        def gateway_register_stores(self, register: Any) -> None:
            register("slow", self.open)

    rules = [{"when": "", "pieces": [{"text": words}]}]
    config = Config(
        server=ServerConfig(store="slow", rerun_lost=True, lease_seconds=1e6),
        models={
            "m": ModelConfig(
                engine="scripted",
                renderer="chat_template",
                parser="plain",
                options={"scripted": {"rules": rules}},
            )
        },
    )
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=[*PLUGINS, Stores()], installed=False)
        services = await open_services(config, plugins, stack)
        yield (
            services,
            BackgroundRuns(
                store,
                lease_seconds=0.05,
                recreate_run=partial(recreate_run, services=services),
            ),
        )


async def begin(services: Services, runs: BackgroundRuns, **more: Any) -> str:
    """Begin a background response; its id."""
    body = encode({"model": "m", "input": "x", "background": True, **more})
    plan = await make_plan(decode_response_request(body), services, size=len(body))
    keep_body(plan, body, services)
    run = response_answer(plan, services)
    await run.prepare()
    starting = asyncio.create_task(runs.start(run))
    store: Any = services.store
    reached = asyncio.create_task(store.reached.wait())
    await asyncio.wait({starting, reached}, return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    _STARTING.append(starting)
    return run.output.response.id


_STARTING: list[asyncio.Task[Any]] = []


@pytest.fixture(autouse=True)
def _no_start_is_left() -> Iterator[None]:
    yield
    assert all(task.done() for task in _STARTING)
    _STARTING.clear()


async def told(store: MemoryStore, response_id: str) -> tuple[Any, ...]:
    """All that anybody can read of the response and of its conversation."""
    record = await store.get(response_id)
    events: list[bytes] = []
    if record is not None and record.streamed and await store.count_events(response_id):
        async for batch in store.read_events(response_id):
            events += batch
    page = await store.list_items(CONVERSATION.id)
    assert page is not None
    return record and encode(record.response), record and record.attempt, events, encode(page.items)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain", marks=pytest.mark.slow),
        pytest.param({"stream": True}, id="streamed", marks=pytest.mark.slow),
        pytest.param({"conversation": CONVERSATION.id}, id="in a conversation", marks=pytest.mark.slow),
        pytest.param({"stream": True, "conversation": CONVERSATION.id}, id="streamed in a conversation"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(MOST))
async def test_who_stands_still_changes_nothing_afterwards(
    at: int, answered: bool, more: dict[str, Any]
) -> None:
    clock = Clock()
    shared = MemoryStore(clock=clock)
    await shared.put_conversation(CONVERSATION)
    slow, quick = SlowStore(shared, at, answered=answered), SlowStore(shared)
    async with process(slow, "own words") as first, process(quick, "other words") as second:
        response_id = await begin(*first, **more)

        async def over() -> bool:
            return await is_over(shared, second[1], response_id)

        def idle() -> bool:
            return not first[1].running + first[1].queued

        await wait_until_async(lambda: slow.reached.is_set() or idle(), "it stands still")
        clock.now += 1000
        async with second[1].maintenance():
            found = await shared.get(response_id)
            if found is not None:
                await wait_until_async(over, "taken over")
            before = await told(shared, response_id)
            slow.wake()
            with suppress(Exception):
                await _STARTING[-1]
            async with first[1].maintenance():
                await wait_until_async(idle, "the first one has ended its own")
                await wait_until_async(over, "the end")
        after = await told(shared, response_id)
    if found is not None:
        assert after == before
    record = await shared.get(response_id)
    assert record is not None
    assert record.response.status in {"completed", "failed"}
    said = [part.text for item in record.response.output for part in item.content]  # type: ignore[union-attr]
    if record.response.status == "completed":
        assert said in (["own words"], ["other words"])
    else:
        assert record.response.error is not None
        assert "owner_lost" in record.response.error.message
        assert more.get("stream"), "what nobody has seen is run again"
    if more.get("stream"):
        events = [json.loads(each) for each in after[2]]
        assert fold(events) == json.loads(after[0])
    expected = 2 if record.response.status == "completed" and "conversation" in more else 0
    assert after[3].count(b'"type":"message"') == expected


async def test_a_start_that_outlasts_its_lease_leaves_another() -> None:
    """A response that is stored has an owner, or it is found when that dies: also if the first lease is gone by then."""
    clock = Clock()
    shared = MemoryStore(clock=clock)
    slow = SlowStore(shared, 1)
    async with process(slow, "own words") as (services, runs):
        response_id = await begin(services, runs)
        clock.now += 1000
        assert await shared.take_orphans("another", seconds=1) == []
        # Longer than the lease, by the clock of the process.
        await asyncio.sleep(0.1)
        slow.wake()
        await _STARTING[-1]
        clock.now += 1000
        taken = await shared.take_orphans("another", seconds=1)
        assert [record.id for record in taken] == [response_id]
        await wait_until_async(lambda: not runs.running + runs.queued, "it has ended")


async def is_over(store: MemoryStore, runs: BackgroundRuns, response_id: str) -> bool:
    """Whether the response and its log have ended, and `runs` has nothing left to do for it."""
    record = await store.get(response_id)
    if record is None or record.response.status in UNFINISHED or runs.running + runs.queued:
        return False
    return not await store.take_orphans("nobody", seconds=0)
