"""A background response of a conversation: its items are in the conversation before anybody sees that it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from gateway.answers.responses.answer import response_answer
from gateway.answers.responses.ending import as_ending
from gateway.answers.responses.plan import make_plan
from gateway.base.deltas import TextDelta
from gateway.base.errors import StoreUnavailable
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.items.assembler import ResponseAssembler
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import UNFINISHED, ResponseStore, StoredResponse
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode
from gateway.wire.ids import new_id
from gateway.wire.request import convert_response_request
from gateway.wire.response import Conversation
from gateway_testing.store_records import message, record
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

CONVERSATION = Conversation(id="conv_1", created_at=1)


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    config = Config(
        server=ServerConfig(lease_seconds=1, max_conversation_items=4),
        models={"m": ModelConfig(engine="scripted")},
    )
    async with AsyncExitStack() as stack:
        services = await open_services(config, load_plugins(), stack)
        assert services.store is not None
        await services.store.put_conversation(CONVERSATION)
        yield services


@pytest.fixture
def store(services: Services) -> ResponseStore:
    assert services.store is not None
    return services.store


async def start(services: Services, *, stream: bool = False) -> str:
    """Begin a background response of the conversation; its id."""
    request = convert_response_request(
        {
            "model": "m",
            "input": "x",
            "conversation": CONVERSATION.id,
            "background": True,
            "stream": stream,
        }
    )
    run = response_answer(await make_plan(request, services, size=1), services)
    await run.prepare()
    assert services.background is not None
    await services.background.start(run)
    return run.output.response.id


async def status(store: ResponseStore, response_id: str) -> str:
    found = await store.get(response_id)
    assert found is not None
    return found.response.status


async def roles(store: ResponseStore) -> list[str]:
    """Of the conversation's messages."""
    page = await store.list_items(CONVERSATION.id)
    assert page is not None
    return [getattr(item, "role", "") for item in page.items]


async def the_end(store: ResponseStore, response_id: str) -> StoredResponse:
    async def over() -> bool:
        return await status(store, response_id) not in UNFINISHED

    await wait_until_async(over, "the end of the response")
    found = await store.get(response_id)
    assert found is not None
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_it_is_not_completed_before_its_items_are_there(
    services: Services, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    append = store.append_items

    async def slow(*arguments: Any, **options: Any) -> bool:
        reached.set()
        await go_on.wait()
        return await append(*arguments, **options)

    monkeypatch.setattr(store, "append_items", slow)
    response_id = await start(services, stream=stream)
    await reached.wait()
    assert await status(store, response_id) == "in_progress"
    assert await roles(store) == []
    go_on.set()
    ended = await the_end(store, response_id)
    assert await roles(store) == ["user", "assistant"]
    assert ended.response.status == "completed"
    assert ended.response.completed_at is not None
    assert ended.response.usage is not None
    assert ended.ending is None


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_another_process_completes_what_its_own_could_not(
    services: Services,
    store: ResponseStore,
    monkeypatch: pytest.MonkeyPatch,
    done: bool,
    stream: bool,
) -> None:
    """It dies between the two, before or after the items are there. They are there once."""
    append, calls = store.append_items, 0

    async def fails_first(*arguments: Any, **options: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls > 1 or done:
            await append(*arguments, **options)
        if calls == 1:
            raise StoreUnavailable("away")
        return True

    monkeypatch.setattr(store, "append_items", fails_first)
    response_id = await start(services, stream=stream)
    ended = await the_end(store, response_id)
    assert ended.response.status == "completed"
    assert ended.response.output
    assert ended.response.usage is not None
    assert ended.ending is None
    assert await roles(store) == ["user", "assistant"]
    assert calls == 2
    if stream:
        events = [each async for batch in store.read_events(response_id) for each in batch]
        assert b'"response.completed"' in events[-1]


async def test_what_is_about_to_complete_is_not_cancelled(
    services: Services, store: ResponseStore
) -> None:
    """Its process is dead: who cancels it completes it, as it was to end."""
    said = [message("assistant", "an answer", item_id="msg_1")]
    begun = record(status="in_progress", conversation_id=CONVERSATION.id)
    await store.put(begun)
    ended = msgspec.structs.replace(
        begun, response=record(response_id=begun.id, output=said).response
    )
    assert await store.advance(as_ending(ended), expected=UNFINISHED, attempt=0)
    assert services.background is not None
    found = await store.get(begun.id)
    assert found is not None
    shown = await services.background.cancel(found)
    assert shown.response.status == "completed"
    assert await roles(store) == ["user", "assistant"]


@pytest.mark.parametrize("status_", ["failed", "cancelled"])
async def test_what_lost_its_owner_shows_its_end_and_its_output_at_once(
    services: Services, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, status_: str
) -> None:
    """From its log. Its owner, who may be slow, writes nothing more meanwhile."""
    assembler = ResponseAssembler(record().response, roles={}, new_id=new_id, clock=lambda: 2.0)
    begun = msgspec.structs.replace(record(status="in_progress"), streamed=True)
    lost = msgspec.structs.replace(
        begun, response=msgspec.structs.replace(begun.response, background=True)
    )
    await store.put(lost)
    events = [*assembler.start(), *assembler.feed([TextDelta("as far as it came")])]
    assert await store.append_events(lost.id, [encode(each) for each in events])
    advance, seen = store.advance, []

    async def watched(new: StoredResponse, **options: Any) -> bool:
        done: bool = await advance(new, **options)
        found = await store.get(lost.id)
        assert found is not None
        seen.append((found.response.status, len(found.response.output)))
        late = await store.append_events(lost.id, [b"{}"], last=True)
        assert not late, "what its owner writes is refused"
        return done

    monkeypatch.setattr(store, "advance", watched)
    assert services.background is not None
    if status_ == "cancelled":
        monkeypatch.setattr("gateway.answers.responses.background.CANCEL_SECONDS", 0.0)
        await services.background.cancel(lost)
    else:
        await store.lease("dead", [lost.id], seconds=0.001)
    ended = await the_end(store, lost.id)
    assert (ended.response.status, len(ended.response.output)) == (status_, 1)
    assert seen == [("in_progress", 0), (status_, 1)]
    logged = [each async for batch in store.read_events(lost.id) for each in batch]
    assert b'"response.failed"' in logged[-1] or status_ == "cancelled"
    assert b"as far as it came" in logged[-1]


@pytest.mark.parametrize("dies", [False, True])
async def test_what_its_conversation_cannot_keep_has_failed(
    services: Services, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    append, calls = store.append_items, 0

    async def filled(*arguments: Any, **options: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            others = [message("user", str(each)) for each in range(3)]
            await append(CONVERSATION.id, others)
            if dies:
                raise StoreUnavailable("away")
        return await append(*arguments, **options)

    monkeypatch.setattr(store, "append_items", filled)
    ended = await the_end(store, await start(services))
    assert ended.response.status == "failed"
    assert ended.response.error is not None
    assert "larger than this server's limit" in ended.response.error.message
    assert await roles(store) == ["user"] * 3
