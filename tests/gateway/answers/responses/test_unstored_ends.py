"""Background responses whose store is away at their end: what they have used is counted, and the log says so."""

from __future__ import annotations

import asyncio
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
from gateway.base.errors import StoreUnavailable
from gateway.config import Config, ModelConfig
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import StoredResponse
from gateway.startup.service_opening import open_services
from gateway.wire.request import convert_response_request
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]


@pytest.mark.parametrize("rerun", [False, True])
@pytest.mark.parametrize("hangs", [False, True], ids=["away", "hangs at the shutdown"])
async def test_what_was_not_stored_counts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, hangs: bool, rerun: bool
) -> None:
    """A request that may be run again is counted by who runs it again; the tokens are used all the same."""
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        services = await open_services(Config(models={"m": model}), plugins, stack)
        store = services.store
        assert store is not None
        known, asked = store.advance, asyncio.Event()

        async def advance(record: StoredResponse, **keys: Any) -> bool:
            if record.response.status == "in_progress":
                return await known(record, **keys)
            asked.set()
            if hangs:
                await asyncio.Event().wait()
            raise StoreUnavailable("The store is away.")

        monkeypatch.setattr(store, "advance", advance)
        runs = BackgroundRuns(store, lease_seconds=60)
        async with runs.maintenance():
            request = convert_response_request({"model": "m", "input": "Say it.", "background": True})  # fmt: skip
            run = response_answer(await make_plan(request, services, size=1), services)
            run.output.plan.body = b"{}" if rerun else None
            await run.prepare()
            await runs.start(run)
            await asked.wait()
            if not hangs:
                await wait_until_async(lambda: not runs.running, "it has ended")
        shown = services.metrics.exposition()[0].decode()
        assert 'gateway_responses_total{model="m",status="failed"} 1.0' in shown
        assert f'gateway_tokens_total{{kind="output",model="m"}} {run.scope.stats.usage.output_tokens}.0' in shown  # type: ignore[union-attr]  # fmt: skip
        assert run.scope.stats.usage.output_tokens > 0  # type: ignore[union-attr]
        [used] = await services.usage.read(0, 1_000_000, width="1d")
        assert used.requests == (0 if rerun else 1)
        assert used.output_tokens == run.scope.stats.usage.output_tokens  # type: ignore[union-attr]
        if not hangs:
            assert f"background response {run.output.response.id} (completed): the store is unavailable" in caplog.text  # fmt: skip
