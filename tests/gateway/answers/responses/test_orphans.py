"""A response whose process has died is run again if nobody has seen anything of it, and has failed otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway import hookimpl
from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.orphans import MAX_ATTEMPTS, ORPHANS_AT_ONCE, OWNER_LOST, Orphans
from gateway.answers.responses.output import OPENING
from gateway.answers.responses.rerun import recreate_run
from gateway.base.deltas import TextDelta
from gateway.base.errors import EngineError, RateLimited, StoreUnavailable
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.items.assembler import ResponseAssembler
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import UNFINISHED, StoredResponse
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.tools.functions import functions
from gateway.wire.common import encode
from gateway.wire.ids import new_id
from gateway_memory.store import MemoryStore
from gateway_testing.store_records import record
from tests.clock import Clock

LEASE = 60.0
BODY = b'{"model": "m", "input": "question", "background": true}'
STREAMED = BODY.replace(b"}", b', "stream": true}')


def roll() -> str:
    """Throws a die."""
    return "six"


class Dice:
    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("dice", functions("dice", roll))


PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted, Dice()]
MODEL = ModelConfig(engine="scripted", renderer="chat_template", parser="plain", allowed_tools=[])


class Process:
    """A process that looks for orphans, and takes down what it starts."""

    def __init__(
        self,
        services: Services,
        store: MemoryStore,
        *,
        holder: str = "us",
        reruns: bool = True,
        recreate: Callable[[StoredResponse], Awaitable[ResponseAnswer]] | None = None,
    ) -> None:
        self.started: list[tuple[ResponseAnswer, int]] = []
        self.owned: set[str] = set()
        known = partial(recreate_run, services=services)
        self.orphans = Orphans(
            store,
            holder,
            lease_seconds=LEASE,
            stall_seconds=1e9,
            owned=self.owned,
            start=lambda run, stored: self.started.append((run, stored)),
            recreate_run=(recreate or known) if reruns else None,
            conversation_bounds=lambda: None,
        )

    def end(self) -> None:
        for run, _ in self.started:
            run.scope.abandon()


class World:
    """A store with its clock, and the services of a process."""

    def __init__(self, runner: asyncio.Runner, services: Services) -> None:
        self.run = runner.run
        self.services = services
        self.clear()

    def clear(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock)

    def orphan(self, made: StoredResponse, events: int = 0) -> StoredResponse:
        """Store a response whose process dies when its clients may have seen so many events."""

        async def put() -> StoredResponse:
            assembler = ResponseAssembler(
                msgspec.structs.replace(made.response), roles={}, new_id=new_id, clock=lambda: 2.0
            )
            told = [*assembler.start("queued"), *assembler.progress()]
            for _ in range(events):
                told += assembler.feed([TextDelta("a word ")])
            running = msgspec.structs.replace(made.response, status="in_progress")
            await self.store.put(msgspec.structs.replace(made, response=running))
            if events:
                encoded = [encode(each) for each in told[:events]]
                assert await self.store.append_events(made.id, encoded, attempt=made.attempt)
            await self.store.put(made)
            await self.store.lease("dead", [made.id], seconds=1)
            return made

        stored = self.run(put())
        self.clock.now += 2
        return stored

    def found(self, response_id: str) -> StoredResponse:
        known = self.run(self.store.get(response_id))
        assert known is not None
        return known

    def log(self, response_id: str) -> list[Any]:
        async def read() -> list[Any]:
            if not await self.store.count_events(response_id):
                return []
            log = self.store.read_events(response_id)
            return [json.loads(event) async for batch in log for event in batch]

        return self.run(read())

    def taken(self) -> list[str]:
        """The ids of the responses that nobody holds."""
        return [each.id for each in self.run(self.store.take_orphans("nobody", seconds=0))]


@pytest.fixture(scope="module")
def opened() -> Iterator[World]:
    config = Config(
        server=ServerConfig(rerun_lost=True),
        models={
            "m": MODEL,
            "dicing": msgspec.structs.replace(MODEL, allowed_tools=["dice"], parser="qwen3"),
        },
        tools={"dice": {}},
    )
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        plugins = load_plugins(extra=PLUGINS, installed=False)
        try:
            yield World(runner, runner.run(open_services(config, plugins, stack)))
        finally:
            runner.run(stack.aclose())


@pytest.fixture
def world(opened: World) -> World:
    opened.clear()
    return opened


@given(
    status=st.sampled_from(["queued", "in_progress"]),
    streamed=st.booleans(),
    events=st.integers(0, OPENING + 3),
    attempt=st.integers(0, MAX_ATTEMPTS + 1),
    kept=st.booleans(),
    reruns=st.booleans(),
)
@settings(max_examples=80)
def test_it_is_run_again_or_has_failed(
    opened: World,
    status: Literal["queued", "in_progress"],
    streamed: bool,
    events: int,
    attempt: int,
    kept: bool,
    reruns: bool,
) -> None:
    """Not if its output could be seen, if its request is not known, or if it may have killed its processes."""
    opened.clear()
    events = events if streamed else 0
    request = (STREAMED if streamed else BODY) if kept else None
    lost = record(status=status, streamed=streamed, attempt=attempt, request=request)
    opened.orphan(lost, events)
    process = Process(opened.services, opened.store, reruns=reruns)
    opened.run(process.orphans.find())
    found = opened.found(lost.id)
    kills = status == "in_progress" and attempt >= MAX_ATTEMPTS - 1
    if reruns and request is not None and events <= OPENING and not kills:
        [(run, stored)] = process.started
        assert (run.output.response.id, stored) == (lost.id, events)
        assert run.output.response.created_at == lost.response.created_at
        assert (found.response.status, found.attempt) == ("queued", attempt + 1)
        assert found.request == request, "another process may run it again"
        assert opened.taken() == [], "this process holds it"
        late = opened.store.advance(lost, expected=UNFINISHED, attempt=attempt)
        assert not opened.run(late), "its owner may be slow instead of dead"
    else:
        assert not process.started
        assert found.response.status == "failed"
        assert found.response.error is not None
        assert OWNER_LOST in found.response.error.message
        assert found.request is None
        opened.clock.now += 10 * LEASE
        assert opened.taken() == [], "nothing is left to do"
        if streamed:
            assert opened.log(lost.id)[-1]["type"] == "response.failed"
    process.end()


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_what_may_have_called_tools_is_not_run_again(
    world: World, status: Literal["queued", "in_progress"]
) -> None:
    body = BODY.replace(b'"m"', b'"dicing"')
    lost = world.orphan(record(status=status, request=body))
    process = Process(world.services, world.store)
    world.run(process.orphans.find())
    assert len(process.started) == (status == "queued")
    assert world.found(lost.id).response.status == ("queued" if process.started else "failed")
    process.end()
    assert world.services.models["dicing"].admission.waiting == 0


def test_what_this_process_runs_is_left_alone(world: World) -> None:
    """Its own lease had expired. Now it is renewed."""
    lost = world.orphan(record(status="in_progress", request=BODY))
    process = Process(world.services, world.store)
    process.owned.add(lost.id)
    world.run(process.orphans.find())
    assert not process.started
    assert world.found(lost.id) == lost
    assert world.taken() == []


def test_all_orphans_are_found_in_one_search(world: World) -> None:
    lost = [world.orphan(record(status="queued")) for _ in range(ORPHANS_AT_ONCE + 5)]
    world.run(Process(world.services, world.store, reruns=False).orphans.find())
    assert {world.found(each.id).response.status for each in lost} == {"failed"}


def test_two_processes_run_it_once(world: World) -> None:
    lost = [world.orphan(record(status="queued", request=BODY)) for _ in range(5)]
    processes = [Process(world.services, world.store, holder=name) for name in ("one", "two")]

    async def both() -> None:
        await asyncio.gather(*(each.orphans.find() for each in processes))

    world.run(both())
    started = [run.output.response.id for each in processes for run, _ in each.started]
    assert sorted(started) == sorted(each.id for each in lost)
    for each in processes:
        each.end()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RateLimited("Later."), "queued"),
        (EngineError("It cannot be run here."), "failed"),
        (ValueError("a defect"), "queued"),
    ],
)
def test_what_cannot_be_run_again_waits_or_has_failed_and_holds_up_no_other(
    world: World, error: Exception, status: str
) -> None:
    """What may be possible later, and what cannot be read, is found again when the new lease has expired."""
    lost = [world.orphan(record(status="queued", request=BODY)) for _ in range(3)]
    asked: list[str] = []

    async def recreate(known: StoredResponse) -> ResponseAnswer:
        asked.append(known.id)
        raise error

    process = Process(world.services, world.store, recreate=recreate)
    world.run(process.orphans.find())
    assert sorted(asked) == sorted(each.id for each in lost)
    assert {world.found(each.id).response.status for each in lost} == {status}
    assert world.taken() == []
    world.clock.now += LEASE + 1
    assert sorted(world.taken()) == (sorted(asked) if status == "queued" else [])


@pytest.mark.parametrize("what", ["begins", "is seen", "ends"])
def test_an_owner_that_goes_on_meanwhile_keeps_its_response(world: World, what: str) -> None:
    """It was slow instead of dead. Two processes never run a response at the same time."""
    streamed = what == "is seen"
    request = STREAMED if streamed else BODY
    lost = world.orphan(record(status="queued", request=request, streamed=streamed), 2 * streamed)
    goes_on = msgspec.structs.replace(
        lost,
        response=msgspec.structs.replace(
            lost.response, status="completed" if what == "ends" else "in_progress"
        ),
    )
    made: list[ResponseAnswer] = []

    async def recreate(known: StoredResponse) -> ResponseAnswer:
        made.append(await recreate_run(known, world.services))
        if streamed:
            assert await world.store.append_events(lost.id, [b"{}", b"{}"])
        else:
            assert await world.store.advance(goes_on, expected=UNFINISHED, attempt=0)
        return made[-1]

    process = Process(world.services, world.store, recreate=recreate)
    if streamed:
        with pytest.MonkeyPatch.context() as monkeypatch:
            # What it wrote is no event that a log could be completed after.
            monkeypatch.setattr(process.orphans, "end", ended := Ended())
            world.run(process.orphans.find())
        assert [each.attempt for each in ended.records] == [1]
    else:
        world.run(process.orphans.find())
        assert world.found(lost.id) == goes_on
    assert len(made) == 1
    assert not process.started
    assert world.services.models["m"].admission.waiting == 0


class Ended:
    """Takes down what is to be ended."""

    def __init__(self) -> None:
        self.records: list[StoredResponse] = []

    async def __call__(self, known: StoredResponse, status: str) -> bool:
        self.records.append(known)
        return True


@pytest.mark.parametrize("call", ["take_orphans", "advance", "count_events"])
def test_a_store_that_is_away_ends_the_search(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Nothing is lost, and no place in the queue of a model is kept."""
    lost = world.orphan(record(status="queued", request=STREAMED, streamed=True), 2)

    async def fail(*arguments: Any, **options: Any) -> Any:
        raise StoreUnavailable("The store is away.")

    process = Process(world.services, world.store)
    with monkeypatch.context() as patched:
        patched.setattr(world.store, call, fail)
        with pytest.raises(StoreUnavailable):
            world.run(process.orphans.find())
    assert not process.started
    assert world.found(lost.id) == lost
    assert world.services.models["m"].admission.waiting == 0
    world.clock.now += LEASE + 1
    assert world.taken() == [lost.id]


def test_a_store_that_is_away_while_a_run_is_made_ends_the_search(world: World) -> None:
    lost = world.orphan(record(status="queued", request=BODY))

    async def recreate(known: StoredResponse) -> ResponseAnswer:
        raise StoreUnavailable("The store is away.")

    with pytest.raises(StoreUnavailable):
        world.run(Process(world.services, world.store, recreate=recreate).orphans.find())
    assert world.found(lost.id) == lost


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
@pytest.mark.parametrize("events", [0, 2, 4, 6])
def test_the_log_of_what_has_ended_is_completed(
    world: World, status: Literal["completed", "failed", "cancelled"], events: int
) -> None:
    """Its process died between the end of the response and the end of the log."""
    lost = world.orphan(record(status=status, streamed=True), events)
    world.run(Process(world.services, world.store).orphans.find())
    found = world.found(lost.id)
    assert found.response.status == status
    *_, last = world.log(lost.id)
    kinds = {"completed": "completed", "failed": "failed", "cancelled": "incomplete"}
    assert last["response"] == json.loads(encode(found.response))
    assert last["type"] in {f"response.{kinds[status]}", f"response.{status}"}
    world.clock.now += 10 * LEASE
    assert world.taken() == []


@pytest.mark.parametrize("streamed", [False, True])
def test_ending_twice_changes_nothing(world: World, streamed: bool) -> None:
    lost = world.orphan(record(status="in_progress", streamed=streamed), 5 * streamed)
    process = Process(world.services, world.store)
    assert world.run(process.orphans.end(lost, "cancelled"))
    found, log = world.found(lost.id), world.log(lost.id)
    assert found.response.status == "cancelled"
    assert found.response.error is None
    assert not world.run(process.orphans.end(lost, "failed")), "it has changed meanwhile"
    assert world.run(process.orphans.end(found, "failed"))
    assert (world.found(lost.id), world.log(lost.id)) == (found, log)
