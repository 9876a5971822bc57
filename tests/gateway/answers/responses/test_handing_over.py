"""A process that is told to end hands over what waits, if another can run it. What cannot be run again keeps its time."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import pytest

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.answers.responses.answer import response_answer
from gateway.answers.responses.background import BackgroundRuns
from gateway.answers.responses.plan import make_plan
from gateway.base.errors import ServerShuttingDown
from gateway.base.shares import current_owner
from gateway.config import Config, ModelConfig
from gateway.observe.request_context import RequestContext, current_principal, within
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import Principal
from gateway.startup.service_opening import open_services
from gateway.wire.request import convert_response_request
from gateway_memory.store import MemoryStore
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "with credentials"])
async def test_what_waits_is_stopped_at_once_only_if_its_request_is_kept(
    monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(MemoryStore, "lasting", True)
    model = ModelConfig(
        engine="scripted", renderer="chat_template", parser="plain", max_running=1, max_waiting=1
    )
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        services = await open_services(Config(models={"m": model}), plugins, stack)
        store = services.store
        assert store is not None
        runs = BackgroundRuns(store, lease_seconds=60)
        async with runs.maintenance():
            async with services.models["m"].admission.reserve():
                request = convert_response_request(
                    {"model": "m", "input": "Say it.", "background": True}
                )
                run = response_answer(await make_plan(request, services, size=1), services)
                run.output.plan.kept_body = b'{"model": "m", "input": "Say it."}' if kept else None
                await run.prepare()
                await runs.start(run)
                await wait_until_async(lambda: services.runs, "it has begun")
                runs.stop(ServerShuttingDown("It is shutting down."))
                if kept:
                    await wait_until_async(lambda: run.output.handed_over, "it is handed over")
            await wait_until_async(lambda: not runs.queued + runs.running, "it has ended")
        assert run.output.response.status == ("queued" if kept else "completed")


async def test_a_run_that_is_taken_over_works_for_its_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its shares and the rights of what it asks for are those of its key, although no request of that key began it."""
    seen: set[tuple[str, Principal | None]] = set()
    advance = MemoryStore.advance

    async def noted(self: MemoryStore, *arguments: Any, **options: Any) -> bool:
        seen.add((current_owner(), current_principal()))
        return await advance(self, *arguments, **options)

    monkeypatch.setattr(MemoryStore, "advance", noted)
    ada = Principal(name="ada")
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        services = await open_services(Config(models={"m": model}), plugins, stack)
        store = services.store
        assert store is not None
        runs = BackgroundRuns(store, lease_seconds=60)
        async with runs.maintenance():
            with within(RequestContext("req_1", principal=ada)):
                request = convert_response_request(
                    {"model": "m", "input": "Say it.", "background": True}
                )
                run = response_answer(await make_plan(request, services, size=1), services)
                await run.prepare()
            await runs.start(run)
            await wait_until_async(lambda: not runs.queued + runs.running, "it has ended")
    assert run.output.response.status == "completed"
    assert seen == {("ada", ada)}
