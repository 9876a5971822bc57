"""Whatever fails, and whenever: one terminal event, the last, and the same state in the store."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

import gateway_chat_template
import gateway_memory
import gateway_parsers
from gateway import hookimpl
from gateway.answers.responses.answer import ResponseAnswer, response_answer
from gateway.answers.responses.plan import make_plan
from gateway.base.errors import (
    EngineError,
    EngineUnavailable,
    GatewayError,
    InvalidRequest,
    RateLimited,
    ServerShuttingDown,
)
from gateway.config import Config, ModelConfig
from gateway.engines.process.connection import OutputStream
from gateway.generation.sinks import ACCEPTED
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import EngineOutput, EngineRequest, NoConfig, ToolResult
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.tools.functions import functions
from gateway.wire.common import encode
from gateway.wire.events import Event
from gateway.wire.request import convert_response_request
from gateway_scripted import ScriptedEngine, ScriptedTokenizer
from gateway_testing.grammar import fold

INSTALLED = [gateway_chat_template, gateway_parsers, gateway_memory]
CALL = '<tool_call>\n{"name": "probe", "arguments": {"what": "x"}}\n</tool_call>'
TEXTS = ["Hello ", "<think>\nhm", "\n</think>\n\n", CALL, "<tool_call>\n{", '"name": "client"', "}", "done"]  # fmt: skip
FAULTS: list[BaseException | str] = [
    EngineError("broken"),
    EngineUnavailable("gone"),
    InvalidRequest("no", param="input"),
    RateLimited("busy"),
    ValueError("a bug"),
    "no finish reason",
    "cancel",
    "stop",
    "leave",
]


class Plan(Struct, frozen=True):
    """What the engine says in each of its turns, and what goes wrong after which output."""

    turns: list[list[str]]
    fault: Any
    after: int
    tool: str


class FaultyEngine(ScriptedEngine):
    """Says what it is told to, and breaks where it is told to."""

    plan: Plan
    run: ResponseAnswer
    task: asyncio.Task[Any]
    said = 0
    turn = 0

    async def check(self, request: EngineRequest) -> None:
        """Nothing is refused before it runs."""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        turn, self.turn = self.turn, self.turn + 1
        texts = self.plan.turns[turn] if turn < len(self.plan.turns) else ["enough"]
        for text in texts:
            await self._fault()
            await asyncio.sleep(0)
            yield EngineOutput(text=text, token_ids=(1,))
        await self._fault()
        if self.plan.fault != "no finish reason":
            yield EngineOutput(finish_reason="stop")

    async def _fault(self) -> None:
        if self.said == self.plan.after:
            match self.plan.fault:
                case BaseException() as error:
                    raise error
                case "cancel":
                    self.run.scope.cancel()
                case "stop":
                    self.run.scope.stop(ServerShuttingDown("over"))
                case "leave":
                    self.task.cancel()
                case _:
                    pass
        self.said += 1


@asynccontextmanager
async def open_faulty(config: NoConfig, context: Any) -> AsyncIterator[FaultyEngine]:
    yield FaultyEngine(name=context.name, tokenizer=ScriptedTokenizer())


class LateEngine(FaultyEngine):
    """The same, and says that it may refuse late: the start of its streams is held back."""

    def may_refuse(self, request: EngineRequest) -> bool:
        return True


@asynccontextmanager
async def open_late(config: NoConfig, context: Any) -> AsyncIterator[LateEngine]:
    yield LateEngine(name=context.name, tokenizer=ScriptedTokenizer())


class PushingEngine(FaultyEngine):
    """The same, and pushes what it says, in its generator or in callbacks of a task."""

    in_callbacks = False

    async def generate_pushing(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        if self.in_callbacks:
            stream = OutputStream(1, push)
            feeding = asyncio.create_task(self._feed(stream, request))
            try:
                while (output := await stream.take()).finish_reason is None:
                    yield output
                yield output
            finally:
                feeding.cancel()
            return
        async with aclosing(self.generate(request)) as outputs:
            async for output in outputs:
                if not push(output):
                    yield output

    async def _feed(self, stream: OutputStream, request: EngineRequest) -> None:
        try:
            async for output in self.generate(request):
                stream.put(output)
                stream.deliver()
            stream.fail(EngineError("no finish reason"))
        except Exception as error:
            stream.fail(cast("GatewayError", error))


@asynccontextmanager
async def open_pushing(config: NoConfig, context: Any) -> AsyncIterator[PushingEngine]:
    yield PushingEngine(name=context.name, tokenizer=ScriptedTokenizer())


class Plugin:
    """The engines, and a tool that behaves as the plan says."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("faulty", open_faulty)
        register("late", open_late)
        register("pushing", open_pushing)

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        async def probe(what: str) -> ToolResult:
            match self._plan.tool:
                case "raises":
                    raise OSError("no disk")
                case "hangs":
                    await asyncio.sleep(600)
                case _:
                    pass
            return ToolResult(text="ok", failed=self._plan.tool == "fails")

        limit = 0.01 if self._plan.tool == "hangs" else 600.0
        register("probe", functions("probe", probe, time_limit=limit))


async def play(
    plan: Plan,
    *,
    background: bool,
    engine_name: str = "faulty",
    accepts: Callable[[], bool] = lambda: False,
    in_callbacks: bool = False,
) -> tuple[list[Event], dict[str, Any] | None, int]:
    """Run one response; its events, what the store has of it, and how many runs are left. `accepts`: whether the sink takes the
    next part at once."""
    config = Config(
        models={"m": ModelConfig(engine=engine_name, renderer="chat_template", parser="qwen3")},
        tools={"probe": {}},
    )
    events: list[Event] = []
    async with AsyncExitStack() as stack:
        services: Services = await open_services(
            config, load_plugins(extra=[*INSTALLED, Plugin(plan)], installed=False), stack
        )
        client = {"type": "function", "name": "client", "parameters": {}}
        request = convert_response_request(
            {
                "model": "m",
                "input": "x",
                "tools": [client],
                "background": background,
                "stream": True,
            }
        )
        run = response_answer(await make_plan(request, services, size=1), services)
        await run.prepare()
        engine: Any = services.models["m"].engine
        engine.plan, engine.run, engine.in_callbacks = plan, run, in_callbacks
        assert services.store is not None
        if background:
            run.output.response.status = "queued"
            await services.store.put(run.output.record())

        waiting: list[Sequence[Event]] = []

        def take() -> None:
            for batch in waiting:
                events.extend(batch)
            waiting.clear()

        async def take_late() -> None:
            await asyncio.sleep(0)
            take()
            await asyncio.sleep(0)

        def sink(batch: Sequence[Event]) -> Awaitable[None]:
            """As those of streams: what is cancelled while it waits is sent before the next part."""
            waiting.append(batch)
            if not accepts():
                return take_late()
            take()
            return ACCEPTED

        engine.task = asyncio.ensure_future(run.run(sink))
        [end] = await asyncio.gather(engine.task, return_exceptions=True)
        if isinstance(end, list) and not run.refused:
            await sink(end)
        record = await services.store.get(run.output.response.id)
        left = len(services.runs) + services.models["m"].admission.running
    stored = None if record is None else json.loads(encode(record.response))
    return events, stored, left


PLANS = st.builds(
    Plan,
    turns=st.lists(st.lists(st.sampled_from(TEXTS), max_size=5), min_size=1, max_size=3),
    fault=st.sampled_from([None, *FAULTS]),
    after=st.integers(0, 6),
    tool=st.sampled_from(["works", "fails", "raises", "hangs"]),
)


@settings(max_examples=150, deadline=None)
@given(PLANS, st.booleans())
@pytest.mark.slow
def test_every_run_ends_once_and_is_stored_as_it_ended(plan: Plan, background: bool) -> None:
    events, stored, left = asyncio.run(play(plan, background=background))
    assert left == 0
    assert stored is not None
    told = [json.loads(encode(event)) for event in events]
    if stored["status"] == "cancelled" and plan.fault == "leave":
        return  # nobody was there to be told
    final = fold(told)
    assert final == stored
    assert final["status"] in ("completed", "failed", "cancelled", "incomplete")


def without_ids(events: Sequence[Event]) -> str:
    """The events as JSON, with ids and times replaced by their order."""
    text = encode(events).decode()
    seen: dict[str, str] = {}
    text = re.sub(
        r"\b[a-z]+_[0-9a-f]{16,}", lambda found: seen.setdefault(found[0], f"id{len(seen)}"), text
    )
    return re.sub(r'"(created_at|completed_at)":[0-9.]+', r'"\1":0', text)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(PLANS)
@example(Plan(turns=[[]], fault="cancel", after=0, tool="works"))
def test_a_start_that_is_held_back_changes_no_event(plan: Plan) -> None:
    direct, _, _ = asyncio.run(play(plan, background=False))
    held, stored, left = asyncio.run(play(plan, background=False, engine_name="late"))
    assert left == 0
    assert stored is not None
    if held:
        told, shown = without_ids(held), without_ids(direct)
        assert told == shown or (plan.fault == "leave" and shown.startswith(told[:-1]))
    else:
        # Nothing was sent: the error is the answer, or nobody waits for one.
        assert plan.fault == "leave" or stored["status"] == "failed"
        assert not any(event["type"].endswith(".delta") for event in json.loads(encode(direct)))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(PLANS)
def test_nothing_is_held_back_of_background_runs(plan: Plan) -> None:
    direct, _, _ = asyncio.run(play(plan, background=True))
    held, _, _ = asyncio.run(play(plan, background=True, engine_name="late"))
    assert without_ids(held) == without_ids(direct)


def chances(seed: int) -> Callable[[], bool]:
    """A sink that accepts two parts of three, in an order that depends on `seed`."""
    random_ = random.Random(seed)
    return lambda: random_.random() < 2 / 3


@settings(max_examples=40, deadline=None, derandomize=True)
@given(PLANS, st.integers(0, 99))
def test_pushed_outputs_become_the_events_of_those_that_are_yielded(plan: Plan, seed: int) -> None:
    yielded, _, _ = asyncio.run(play(plan, background=False))
    pushed, stored, left = asyncio.run(
        play(plan, background=False, engine_name="pushing", accepts=chances(seed))
    )
    assert left == 0
    assert stored is not None
    if plan.fault not in ("cancel", "stop", "leave"):  # which come when they come
        assert without_ids(pushed) == without_ids(yielded)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(PLANS, st.integers(0, 99))
def test_a_run_whose_outputs_are_pushed_is_stored_as_it_was_told(plan: Plan, seed: int) -> None:
    events, stored, left = asyncio.run(
        play(
            plan,
            background=False,
            engine_name="pushing",
            accepts=chances(seed),
            in_callbacks=True,
        )
    )
    assert left == 0
    assert stored is not None
    if plan.fault != "leave":  # nobody was there to be told
        assert fold([json.loads(encode(event)) for event in events]) == stored
