"""A response is stored when it begins and when it ends, unless another process has ended it or taken it over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.answers.responses.answer import ResponseAnswer, response_answer
from gateway.answers.responses.plan import make_plan
from gateway.base.deltas import TextDelta
from gateway.base.errors import ConversationFull, StoreUnavailable
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import ResponseStore
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.request import convert_response_request
from gateway.wire.response import Conversation, IncompleteDetails, ResponseStatus
from gateway_testing.store_records import message

pytestmark = pytest.mark.anyio
PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
CONVERSATION = Conversation(id="conv_1", created_at=1)
MODEL = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    config = Config(server=ServerConfig(max_conversation_items=4), models={"m": MODEL})
    async with AsyncExitStack() as stack:
        opened = await open_services(config, load_plugins(extra=PLUGINS, installed=False), stack)
        assert opened.store is not None
        await opened.store.put_conversation(CONVERSATION)
        yield opened


@pytest.fixture
def store(services: Services) -> ResponseStore:
    assert services.store is not None
    return services.store


async def begun(services: Services, **request: Any) -> ResponseAnswer:
    """The answer to a request, which has written a few words."""
    decoded = convert_response_request({"model": "m", "input": "x", **request})
    run = response_answer(await make_plan(decoded, services, size=1), services)
    run.output.plan.body, run.output.plan.kept_body = b"the body", b"the kept body"
    run.output.assembler.start("queued" if run.output.plan.background else "in_progress")
    run.output.assembler.feed([TextDelta("some words")])
    return run


async def ended(services: Services, **request: Any) -> ResponseAnswer:
    """The same when its work has ended."""
    run = await begun(services, **request)
    if run.output.plan.background:
        assert services.store is not None
        await services.store.put(run.output.record())
        run.output.assembler.progress()
        assert await run.output.storage.begin(run.output.record())
    run.output.assembler.finish(run.output.usage())
    return run


async def end(run: ResponseAnswer) -> bool:
    return await run.output.storage.end(run.output.plan, run.output.assembler)


def away(monkeypatch: pytest.MonkeyPatch, store: ResponseStore, name: str) -> None:
    """From now on the `name` of the store fails."""

    async def fail(*arguments: Any, **options: Any) -> Any:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setattr(store, name, fail)


def observed(services: Services, outcome: str) -> float:
    """How many responses were stored with the outcome, by the metrics."""
    [text, *_] = services.metrics.exposition()
    name = f'gateway_store_seconds_count{{outcome="{outcome}"}} '
    found = [line for line in text.decode().splitlines() if line.startswith(name)]
    return float(found[0].removeprefix(name)) if found else 0.0


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_record_shows_the_response_as_it_is_now(
    services: Services, background: bool, stream: bool
) -> None:
    run = await begun(services, background=background, stream=stream)
    response = run.output.response
    before = run.output.record()
    run.output.assembler.finish(run.output.usage())
    after = run.output.record()
    assert before.response.status in ("queued", "in_progress")
    assert (after.response.status, len(after.response.output)) == ("completed", 1)
    assert before.response.id == after.response.id == response.id
    assert before.streamed is after.streamed is (background and stream)
    # What has ended is not run again, and its input is stored as items.
    assert (before.request, after.request) == (b"the body", None)
    assert before.input == after.input == run.output.plan.input
    run.scope.abandon()


@pytest.mark.parametrize("status", ["queued", "in_progress", "failed", "incomplete", "cancelled"])
async def test_what_is_queued_again_is_as_it_was_before_it_ran(
    services: Services, status: ResponseStatus
) -> None:
    run = await begun(services, background=True, stream=True)
    first = run.output.record()
    output = run.output
    match status:
        case "in_progress":
            output.assembler.progress()
        case "failed":
            output.assembler.fail("server_error", "It failed.", output.usage())
        case "cancelled":
            output.assembler.cancel(output.usage())
        case "incomplete":
            output.assembler.finish(output.usage())
            output.response.status = "incomplete"
            output.response.incomplete_details = IncompleteDetails(reason="max_output_tokens")
    output.storage.attempt = 2
    again = output.storage.queued_again(output.plan)
    assert again == msgspec.structs.replace(first, attempt=3, request=b"the kept body")
    assert output.response.status == status, "the response itself is not changed"
    run.scope.abandon()


@pytest.mark.parametrize("status", ["in_progress", "cancelled", "failed", None])
async def test_what_another_process_has_changed_is_neither_begun_nor_ended(
    services: Services, store: ResponseStore, status: ResponseStatus | None
) -> None:
    """Also if it was deleted."""
    run = await begun(services, background=True)
    theirs = run.output.record()
    if status is not None:
        theirs.response.status = status
        await store.put(theirs)
    run.output.assembler.progress()
    assert not await run.output.storage.begin(run.output.record())
    assert not run.output.storage.has_begun
    run.output.assembler.finish(run.output.usage())
    assert not await end(run)
    found = await store.get(theirs.id)
    assert found == (None if status is None else theirs)
    assert observed(services, "completed") == observed(services, "failed") == 0
    run.scope.abandon()


async def test_what_another_process_ends_while_it_runs_keeps_that_end(
    services: Services, store: ResponseStore
) -> None:
    run = await ended(services, background=True)
    found = await store.get(run.output.response.id)
    assert found is not None
    assert found.response.status == "in_progress"
    found.response.status = "cancelled"
    await store.put(found)
    assert not await end(run)
    assert await store.get(run.output.response.id) == found
    run.scope.abandon()


@pytest.mark.parametrize("background", [False, True])
async def test_an_ended_response_is_stored_with_its_output(
    services: Services, store: ResponseStore, background: bool
) -> None:
    run = await ended(services, background=background)
    assert await end(run)
    found = await store.get(run.output.response.id)
    assert found is not None
    assert found.response.status == "completed"
    assert found.response.output == run.output.response.output
    assert (observed(services, "completed"), observed(services, "failed")) == (1, 0)
    run.scope.abandon()


async def test_what_is_not_to_be_stored_is_not(services: Services, store: ResponseStore) -> None:
    run = await ended(services, store=False)
    assert await end(run)
    assert await store.get(run.output.response.id) is None
    run.scope.abandon()


async def test_without_a_store_a_response_begins_and_ends(services: Services) -> None:
    run = await begun(services)
    services.store = None
    assert await run.output.storage.begin(run.output.record())
    assert run.output.storage.has_begun
    assert await end(run)
    run.scope.abandon()


@pytest.mark.parametrize("call", ["put", "append_items"])
async def test_a_foreground_response_that_cannot_be_stored_has_failed(
    services: Services, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Its client, who would continue it, is told so. Its output is kept."""
    run = await ended(services, conversation=CONVERSATION.id)
    away(monkeypatch, store, call)
    assert await end(run)
    response = run.output.response
    assert response.status == "failed"
    assert response.error is not None
    assert response.error.message == "Not stored: The store is away."
    assert len(response.output) == 1
    assert isinstance(run.scope.error, StoreUnavailable)
    assert (observed(services, "completed"), observed(services, "failed")) == (0, 1)
    run.scope.abandon()


@pytest.mark.parametrize("call", ["advance", "append_items"])
async def test_a_background_response_that_cannot_be_stored_is_left_to_another_process(
    services: Services, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    run = await ended(services, background=True, conversation=CONVERSATION.id)
    away(monkeypatch, store, call)
    with pytest.raises(StoreUnavailable):
        await end(run)
    assert run.output.response.status == "completed"
    found = await store.get(run.output.response.id)
    assert found is not None
    assert found.response.status == "in_progress"
    assert (found.ending is not None) is (call == "append_items")
    assert (observed(services, "completed"), observed(services, "failed")) == (0, 1)
    run.scope.abandon()


async def test_a_foreground_response_that_its_conversation_cannot_keep_has_failed(
    services: Services, store: ResponseStore
) -> None:
    """It is stored as such, and nothing of it is in the conversation."""
    run = await ended(services, conversation=CONVERSATION.id)
    others = [message("user", str(number)) for number in range(3)]
    await store.append_items(CONVERSATION.id, others)
    assert await end(run)
    found = await store.get(run.output.response.id)
    assert found is not None
    assert found.response.status == run.output.response.status == "failed"
    assert isinstance(run.scope.error, ConversationFull)
    page = await store.list_items(CONVERSATION.id)
    assert page is not None
    assert [*page.items] == others
    run.scope.abandon()


@pytest.mark.parametrize("background", [False, True])
async def test_a_response_has_its_input_with_the_ids_of_the_conversation(
    services: Services, store: ResponseStore, background: bool
) -> None:
    """Another item with an id of it has come into the conversation meanwhile."""
    sent = [{"role": "user", "content": "x", "id": "msg_same"}]
    run = await ended(services, conversation=CONVERSATION.id, background=background, input=sent)
    await store.append_items(CONVERSATION.id, [message("user", "other", item_id="msg_same")])
    assert await end(run)
    page = await store.list_items(CONVERSATION.id)
    found = await store.get(run.output.response.id)
    assert page is not None
    assert found is not None
    other, question, answer = page.items
    assert other.id == "msg_same"
    assert [*found.input] == [*run.output.plan.input] == [question]
    assert question.id != "msg_same"
    assert found.response.output == [answer]
    run.scope.abandon()


async def test_the_end_of_a_background_response_is_stored_before_its_conversation_has_it(
    services: Services, store: ResponseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a process with an earlier record cannot end it differently any more."""
    run = await ended(services, background=True, conversation=CONVERSATION.id)
    earlier = await store.get(run.output.response.id)
    append, seen = store.append_items, []

    async def noted(*arguments: Any, **options: Any) -> bool:
        assert earlier is not None
        found = await store.get(earlier.id)
        assert found is not None
        seen.append((found.response.status, found.ending is not None, found.attempt))
        late = await store.advance(earlier, expected={"in_progress"}, attempt=earlier.attempt)
        assert not late
        return await append(*arguments, **options)

    monkeypatch.setattr(store, "append_items", noted)
    assert await end(run)
    assert seen == [("in_progress", True, 1)]
    found = await store.get(run.output.response.id)
    assert found is not None
    assert (found.response.status, found.ending, found.attempt) == ("completed", None, 1)
    run.scope.abandon()
