"""Background responses on Redis, with a fault or a request to cancel at every step that they take in the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec import Struct

import gateway_chat_template
import gateway_parsers
from gateway import hookimpl
from gateway.answers.responses.answer import response_answer
from gateway.answers.responses.background import BackgroundRuns
from gateway.answers.responses.plan import make_plan
from gateway.base.errors import StoreUnavailable
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import UNFINISHED, NoConfig
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode
from gateway.wire.ids import new_id
from gateway.wire.request import convert_response_request
from gateway.wire.response import Conversation
from gateway_redis import RedisConfig, open_redis
from gateway_redis.event_writer import RedisEventWriter
from gateway_redis.store import RedisStore
from gateway_scripted import ScriptedEngine, ScriptedTokenizer, parse_scenario
from gateway_testing.grammar import fold
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

LEASE_SECONDS = 1.0
STEPS = 16
RULES = [{"pieces": [{"text": "one two three four five six"}], "delay_ms": 2}]


class Fault(Struct, frozen=True):
    """What happens at the how manieth step of a response in the store."""

    at: int
    kind: str


class FaultyWriter(RedisEventWriter):
    """Fails the appends of some responses, beside those of others in the same call."""

    def __init__(self, store: FaultyStore, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._store = store

    async def _send(self, batch: Any, token: str) -> Any:
        kinds = [self._store.step(each.response_id) for each in batch]
        sent = [
            each for each, kind in zip(batch, kinds, strict=True) if kind not in ("before", "away")
        ]
        lengths = iter(await super()._send(sent, token) if sent else ())
        answers = [None if kind in ("before", "away") else next(lengths) for kind in kinds]
        return [
            answer if kind is None else kind for answer, kind in zip(answers, kinds, strict=True)
        ]

    def _finish(self, entry: Any, length: Any) -> None:
        if isinstance(length, str):
            self._fail(entry, StoreUnavailable(length))
        else:
            super()._finish(entry, length)


class FaultyStore(RedisStore):
    """Redis, with a fault for some responses: a call that fails before or after it is done, or a long absence."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        own = self._writer
        self._writer = FaultyWriter(
            self, own._server, own._keys, own._tokens, own._reader, outage=0
        )
        self.faults: dict[str, Fault] = {}
        self.steps: dict[str, int] = {}
        self.responses: dict[str, str] = {}
        """The response of each conversation."""
        self.cancel: Callable[[str], Any] = lambda response_id: None

    def step(self, response_id: str) -> str | None:
        """What happens at the next step."""
        step = self.steps[response_id] = self.steps.get(response_id, -1) + 1
        fault = self.faults.get(response_id)
        if fault is None or not fault.at <= step < fault.at + (2 if fault.kind == "away" else 1):
            return None
        if fault.kind == "cancel":
            self.cancel(response_id)
            return None
        return fault.kind

    async def _step(self, response_id: str, work: Callable[[], Any]) -> Any:
        kind = self.step(response_id)
        result = None if kind in ("before", "away") else await work()
        if kind is not None:
            raise StoreUnavailable(kind)
        return result

    async def put(self, record: Any) -> None:
        await self._step(record.id, lambda: super(FaultyStore, self).put(record))

    async def advance(self, record: Any, *, expected: Any, attempt: int | None = None) -> bool:
        put = super().advance
        done: bool = await self._step(
            record.id, lambda: put(record, expected=expected, attempt=attempt)
        )
        return done

    async def append_items(self, conversation_id: str, items: Any, **options: Any) -> bool:
        append = super().append_items
        done: bool = await self._step(
            self.responses.get(conversation_id, ""),
            lambda: append(conversation_id, items, **options),
        )
        return done

    async def count_events(self, response_id: str) -> int:
        count = super().count_events
        number: int = await self._step(response_id, lambda: count(response_id))
        return number

    async def release(self, holder: str, response_id: str) -> None:
        release = super().release
        await self._step(response_id, lambda: release(holder, response_id))


class Plugin:
    """The store, and an engine that says a few words."""

    def __init__(self, url: str) -> None:
        self._url = url

    @hookimpl
    def gateway_register_stores(self, register: Any) -> None:
        register("faulty", self._open_store)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("speaking", self._open_engine)

    @asynccontextmanager
    async def _open_store(self, config: NoConfig) -> AsyncIterator[FaultyStore]:
        redis = RedisConfig(url=self._url, outage=0, connect_timeout=60, timeout=60)
        async with open_redis(redis) as store:
            yield FaultyStore(store._server, redis)

    @asynccontextmanager
    async def _open_engine(self, config: NoConfig, context: Any) -> AsyncIterator[ScriptedEngine]:
        scenario = parse_scenario(json.dumps(RULES))
        yield ScriptedEngine(scenario, name=context.name, tokenizer=ScriptedTokenizer())


async def started(services: Services, fault: Fault, conversation: str | None = None) -> str:
    """A background response with that fault; its id."""
    body = {"model": "m", "input": "x", "background": True, "stream": True}
    if conversation is not None:
        body["conversation"] = conversation
    request = convert_response_request(body)
    run = response_answer(await make_plan(request, services, size=1), services)
    await run.prepare()
    store: Any = services.store
    store.faults[run.output.response.id] = fault
    if conversation is not None:
        store.responses[conversation] = run.output.response.id
    assert services.background is not None
    with suppress(StoreUnavailable):  # the client is told 503
        await services.background.start(run)
    return run.output.response.id


async def ended(store: Any, response_id: str) -> tuple[list[Any], Any]:
    """The whole log and the final response; None where it was never stored."""
    async with asyncio.timeout(60), aclosing(store.read_events(response_id)) as log:
        events = [json.loads(event) async for batch in log for event in batch]
    record = await store.get(response_id)
    return events, None if record is None else json.loads(encode(record.response))


@pytest.fixture
async def services(redis_process, request: pytest.FixtureRequest) -> AsyncIterator[Services]:
    redis_process.ask("FLUSHALL")
    config = Config(
        server=ServerConfig(store="faulty", lease_seconds=getattr(request, "param", LEASE_SECONDS)),
        models={"m": ModelConfig(engine="speaking", renderer="chat_template", parser="qwen3")},
    )
    plugins = load_plugins(
        extra=[gateway_chat_template, gateway_parsers, Plugin(redis_process.url)], installed=False
    )
    async with AsyncExitStack() as stack:
        yield await open_services(config, plugins, stack)


@pytest.mark.parametrize("kind", ["before", "after", "away"])
@pytest.mark.slow
async def test_whenever_the_store_fails_there_is_one_end(services: Services, kind: str) -> None:
    ids = [await started(services, Fault(at, kind)) for at in range(STEPS)]
    failed = 0
    for response_id in ids:
        events, final = await ended(services.store, response_id)
        if final is None:
            assert (events, kind) == ([], kind)
            continue
        assert final["status"] not in UNFINISHED
        assert fold(events) == final
        failed += final["status"] == "failed"
    assert failed > 1
    assert services.store is not None
    await asyncio.sleep(LEASE_SECONDS)
    assert await services.store.take_orphans("other", seconds=60) == []


@pytest.mark.parametrize("kind", ["before", "after", "away"])
async def test_whenever_the_store_fails_a_conversation_has_what_has_ended(
    services: Services, kind: str
) -> None:
    """Whole, or nothing of it, and before anybody sees the end."""
    store: Any = services.store
    conversations = [Conversation(id=new_id("conv_"), created_at=1) for _ in range(STEPS)]
    for each in conversations:
        await store.put_conversation(each)
    ids = [
        await started(services, Fault(at, kind), each.id) for at, each in enumerate(conversations)
    ]
    statuses = set()
    for response_id, each in zip(ids, conversations, strict=True):

        async def over(response_id: str = response_id) -> Any:
            record = await store.get(response_id)
            return record is None or record.response.status not in UNFINISHED

        await wait_until_async(over, f"the end of {response_id}")
        page = await store.list_items(each.id)
        record = await store.get(response_id)
        kept = record is not None and record.response.status == "completed"
        statuses.add(None if record is None else record.response.status)
        made = [] if record is None else [*record.input, *record.response.output]
        assert encode(page.items) == encode(made if kept else [])
        events, final = await ended(store, response_id)
        assert (fold(events) if events else None) == final
    assert statuses >= {"completed", "failed"}


@pytest.mark.parametrize("services", [60.0], indirect=True, ids=["leased long"])
async def test_whenever_it_is_cancelled_there_is_one_end(services: Services, redis_process) -> None:
    """From another replica, at every step that the run takes in the store."""
    store: Any = services.store
    async with open_redis(
        RedisConfig(url=redis_process.url, connect_timeout=60, timeout=60)
    ) as elsewhere:
        replica = BackgroundRuns(elsewhere, lease_seconds=60.0)
        cancelling: list[asyncio.Task[Any]] = []

        async def cancel(response_id: str) -> str:
            record = await elsewhere.get(response_id)
            if record is None:
                return "unknown"
            return (await replica.cancel(record)).response.status

        store.cancel = lambda response_id: cancelling.append(
            asyncio.create_task(cancel(response_id))
        )
        ids = [await started(services, Fault(at, "cancel")) for at in range(STEPS)]
        statuses = set()
        for response_id in ids:
            events, final = await ended(store, response_id)
            assert final["status"] not in UNFINISHED
            assert fold(events) == final
            statuses.add(final["status"])
        assert "cancelled" in statuses
        assert statuses <= {"cancelled", "completed"}
        told = set(await asyncio.gather(*cancelling))
        assert told <= {"cancelled", "completed", "unknown"}
