"""A response whose model cannot begin moves on to another one: its client, the store and the log see one response."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.answers.responses.answer import prepare_response
from gateway.answers.run_scope import RunScope
from gateway.config import Config, ModelConfig, RouteConfig
from gateway.plugins.loading import load_plugins
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode
from gateway.wire.request import convert_response_request
from gateway_memory.store import MemoryStore
from gateway_testing.grammar import fold
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]


@pytest.mark.parametrize("models", [["first", "second"], ["first", "third", "second"]])
async def test_a_response_that_moves_on_in_the_queue_is_stored_as_in_progress(
    monkeypatch: pytest.MonkeyPatch, models: list[str]
) -> None:
    stored: list[tuple[str, str]] = []
    advance = MemoryStore.advance

    async def noted(self: MemoryStore, record: Any, **options: Any) -> bool:
        stored.append((record.response.status, record.response.model))
        return await advance(self, record, **options)

    monkeypatch.setattr(MemoryStore, "advance", noted)
    model = ModelConfig(
        engine="scripted", renderer="chat_template", parser="plain", max_running=1, max_waiting=1
    )
    config = Config(
        models=dict.fromkeys(("first", "second", "third"), model),
        routes={"route": RouteConfig(models=models)},
    )
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        services = await open_services(config, plugins, stack)
        assert services.background is not None
        assert services.store is not None
        # Whatever is sent for the request that holds the only place does not wait for that place.
        for name in models[:-1]:
            outer = RunScope(services, name="the outer request", api="test")
            outer.reserve(services.models[name])
            await stack.enter_async_context(outer.slot)
        request = convert_response_request(
            {"model": "route", "input": "Say it.", "background": True, "stream": True}
        )
        run = await prepare_response(request, services, size=1)
        record = await services.background.start(run)
        assert (record.response.status, record.response.model) == ("queued", "first")
        async with asyncio.timeout(60):
            events = [
                json.loads(event)
                async for batch in services.store.read_events(record.id)
                for event in batch
            ]
        await wait_until_async(lambda: not services.runs)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:4]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
    ]
    final = fold(events)
    assert (final["status"], final["model"]) == ("completed", "second")
    assert stored == [("in_progress", "second"), ("completed", "second")]


async def test_a_stream_that_is_cancelled_before_its_next_model_starts_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent of the first model's attempt, so the response is shown from its creation."""
    checks: list[asyncio.Event] = []

    async def health(self: MemoryStore) -> None:
        checks.append(asyncio.Event())
        if len(checks) == 2:  # of the second model
            await checks[-1].wait()

    monkeypatch.setattr(MemoryStore, "health", health)
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain", max_running=1)
    config = Config(
        models=dict.fromkeys(("first", "second"), model),
        routes={"route": RouteConfig(models=["first", "second"])},
    )
    events: list[Any] = []

    async def sink(some: Any) -> None:
        events.extend(some)

    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        services = await open_services(config, plugins, stack)
        outer = RunScope(services, name="the outer request", api="test")
        outer.reserve(services.models["first"])
        await stack.enter_async_context(outer.slot)
        request = convert_response_request({"model": "route", "input": "Say it.", "stream": True})
        run = await prepare_response(request, services, size=1)
        running = asyncio.create_task(run.run(sink))
        await wait_until_async(lambda: len(checks) == 2)
        run.scope.cancel()
        events.extend(await running or [])
    shown = [json.loads(encode(event)) for event in events]
    assert [event["type"] for event in shown] == [
        "response.created",
        "response.in_progress",
        "response.incomplete",
    ]
    assert [event["sequence_number"] for event in shown] == [0, 1, 2]
