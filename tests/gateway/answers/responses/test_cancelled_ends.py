"""A run that is ended just as its engine ends: what was made last is sent, stored, and followed by one terminal event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import gateway_chat_template
import gateway_memory
import gateway_parsers
from gateway import hookimpl
from gateway.answers.chat.output import chat_answer
from gateway.answers.chat.plan import make_chat_plan
from gateway.answers.responses.answer import response_answer
from gateway.answers.responses.plan import make_plan
from gateway.base.errors import ServerShuttingDown
from gateway.config import Config, ModelConfig
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import EngineOutput, EngineRequest, NoConfig
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.chat import convert_chat_request
from gateway.wire.common import encode
from gateway.wire.events import Event
from gateway.wire.request import convert_response_request
from gateway_scripted import ScriptedEngine, ScriptedTokenizer
from gateway_testing.grammar import fold
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

STEPS = 6
"""As many steps of the event loop after the engine's end as it takes until a run without a client is over."""


class EndingEngine(ScriptedEngine):
    """Waits after its last output."""

    is_ending: asyncio.Event
    may_end: asyncio.Event
    last_step: Callable[[], None] | None = None

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        try:
            yield EngineOutput(text="one ", token_ids=(1,))
            yield EngineOutput(text="two", token_ids=(2,), finish_reason="stop")
        finally:
            self.is_ending.set()
            await self.may_end.wait()
            if self.last_step is not None:
                self.last_step()


class Plugin:
    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        @asynccontextmanager
        async def open_ending(config: NoConfig, context: Any) -> AsyncIterator[EndingEngine]:
            yield EndingEngine(name=context.name, tokenizer=ScriptedTokenizer())

        register("ending", open_ending)


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    plugins = [gateway_chat_template, gateway_memory, gateway_parsers, Plugin()]
    config = Config(
        models={"m": ModelConfig(engine="ending", renderer="chat_template", parser="qwen3")}
    )
    async with AsyncExitStack() as stack:
        yield await open_services(config, load_plugins(extra=plugins, installed=False), stack)


def expect_end(run: Any) -> None:
    engine: Any = run.model.engine
    engine.is_ending, engine.may_end = asyncio.Event(), asyncio.Event()


async def end_early(run: Any, *, how: str, steps: int) -> None:
    """End `run` by `how` after `steps` steps of the event loop from where its engine may end; with 0, before that."""
    engine: Any = run.model.engine
    await engine.is_ending.wait()
    if steps:
        engine.may_end.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    run.scope.cancel() if how == "cancel" else run.scope.stop(ServerShuttingDown("over"))
    engine.may_end.set()


def nothing_left(services: Services, run: Any) -> bool:
    return len(services.runs) == 0 and run.model.admission.running == 0


def check(told: list[Any], final: Any) -> None:
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert fold(told) == final
    assert final["output"][0]["content"][0]["text"] == "one two"


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_the_events_of_the_last_output_are_sent(
    services: Services, how: str, few: bool
) -> None:
    for steps in range(STEPS):
        for kind in ("events", "background"):
            request = {"model": "m", "input": "x", "stream": True, "max_output_tokens": 8 if few else 100}  # fmt: skip
            decoded = convert_response_request({**request, "background": kind == "background"})
            run = response_answer(await make_plan(decoded, services, size=1), services)
            await run.prepare()
            told: list[Any] = []

            async def sink(events: Sequence[Event], told: list[Any] = told) -> None:
                told += json.loads(encode(events))
                await asyncio.sleep(0)

            expect_end(run)
            assert services.store is not None
            if kind == "background":
                assert services.background is not None
                await services.background.start(run)
                await end_early(run, how=how, steps=steps)
                background = services.background
                await wait_until_async(lambda: background.live(run.output.response.id) is None)  # noqa: B023
                async for batch in services.store.read_events(run.output.response.id):
                    told += map(json.loads, batch)
            else:
                task = asyncio.ensure_future(run.run(sink))
                await end_early(run, how=how, steps=steps)
                await sink(await task or [])
            record = await services.store.get(run.output.response.id)
            assert record is not None
            check(told, json.loads(encode(record.response)))
            assert nothing_left(services, run)


@pytest.mark.parametrize("how", ["cancel", "stop"])
async def test_a_run_that_is_ended_in_the_last_step_of_its_generation_sends_its_output(
    services: Services, how: str
) -> None:
    """The task of the generation, which is cancelled while it returns, drops what it returns."""
    request = {"model": "m", "input": "x", "stream": True, "max_output_tokens": 100}
    run = response_answer(
        await make_plan(convert_response_request(request), services, size=1), services
    )
    await run.prepare()
    told: list[Any] = []

    async def sink(events: Sequence[Event]) -> None:
        told.extend(json.loads(encode(events)))

    expect_end(run)
    engine: Any = run.model.engine
    engine.may_end.set()
    error = ServerShuttingDown("over")
    engine.last_step = run.scope.cancel if how == "cancel" else lambda: run.scope.stop(error)
    await sink(await asyncio.create_task(run.run(sink)) or [])
    assert services.store is not None
    record = await services.store.get(run.output.response.id)
    assert record is not None
    check(told, json.loads(encode(record.response)))
    assert nothing_left(services, run)


@pytest.mark.parametrize("few", [True, False])
async def test_the_last_chunks_of_a_chat_are_sent(services: Services, few: bool) -> None:
    for steps in range(STEPS):
        request = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 8 if few else 100}  # fmt: skip
        plan = await make_chat_plan(convert_chat_request(request), services, size=1)
        run = chat_answer(plan, services)
        await run.prepare()
        sent: list[bytes] = []

        async def sink(part: bytes, sent: list[bytes] = sent) -> None:
            sent.append(part)

        expect_end(run)
        task = asyncio.ensure_future(run.run(sink))
        await end_early(run, how="stop", steps=steps)
        sent.append(await task or b"")
        assert b"".join(sent).count(b'two"') == 1
        assert nothing_left(services, run)
