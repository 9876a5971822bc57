"""The life cycle of an answer: the order in which its output is asked, fallback to other models, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext

import pytest
from msgspec import Struct

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.answers.answer import Answer, Output
from gateway.answers.attempts import Attempts
from gateway.answers.run_scope import RunScope
from gateway.base.errors import EngineError, GatewayError, InvalidRequest, StoreUnavailable
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.generation.sinks import HeldSink
from gateway.generation.usage import ExpectedTokens
from gateway.generation.writers import Sink
from gateway.plugins.loading import load_plugins
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway.wire.response import Usage
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
Parts = list[str]
AWAY = EngineError("The engine is away.")


class Script(Struct, kw_only=True):
    """What happens to the output of one model. It takes the place of a plan."""

    model: str = "first"
    unplanned: GatewayError | None = None
    """Raised instead of making the plan."""
    unprepared: GatewayError | None = None
    fails: Exception | None = None
    """Raised by `make`."""
    releases: bool = False
    """Whether `make` releases the start of the answer."""
    began: bool = False
    holds: bool = False
    in_background: bool = False
    waits_for: asyncio.Event | None = None
    """Awaited by `make`."""
    keeps: bool = True
    not_kept: GatewayError | None = None
    """Raised by `keep`."""


class ScriptedOutput(Output[Parts]):
    """Notes in `calls` what it is asked. Its parts are the names of the methods that return them."""

    def __init__(self, script: Script, services: Services, calls: list[str]) -> None:
        super().__init__()
        self.model = services.models[script.model]
        self.params = nullcontext()
        self.in_background = script.in_background
        self._script = script
        self._calls = calls

    def _note(self, method: str) -> Parts:
        self._calls.append(f"{self._script.model} {method}")
        return [f"{self._script.model} {method}"]

    async def prepare(self) -> ExpectedTokens:
        self._note("prepare")
        if self._script.unprepared is not None:
            raise self._script.unprepared
        return ExpectedTokens()

    @property
    def began(self) -> bool:
        return self._script.began

    @property
    def holds(self) -> bool:
        return self._script.holds

    def usage(self) -> Usage:
        return Usage(input_tokens=0, output_tokens=0, total_tokens=0)

    def start(self) -> Parts:
        return self._note("start")

    async def begin(self, sink: Sink[Parts]) -> bool:
        self._note("begin")
        return True

    async def make(self, sink: Sink[Parts]) -> Parts:
        rest = self._note("make")
        if self._script.releases:
            assert isinstance(sink, HeldSink)
            await sink.release()
        if self._script.waits_for is not None:
            await self._script.waits_for.wait()
        if self._script.fails is not None:
            raise self._script.fails
        return rest

    def finish(self, rest: Parts) -> Parts:
        self.status = "completed"
        return [*rest, *self._note("finish")]

    def fail(self, error: GatewayError) -> Parts:
        self.status = "failed"
        return self._note("fail")

    def cancel(self) -> Parts:
        self.status = "cancelled"
        return self._note("cancel")

    async def keep(self, scope: RunScope) -> bool:
        self._note("keep")
        if self._script.not_kept is not None:
            raise self._script.not_kept
        return self._script.keeps

    def terminal(self) -> Parts:
        return self._note("terminal")

    def join(self, first: Parts, second: Parts) -> Parts:
        return [*first, *second]

    def report(self, error: GatewayError | None) -> None:
        self._note("report")


class Case:
    """An answer by `scripts`, one of each model, and what is seen of it."""

    def __init__(self, services: Services, scripts: Sequence[Script]) -> None:
        self.services = services
        self.scope = RunScope(services, name="the test's answer", api="test")
        self.calls: list[str] = []
        self.sent: Parts = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.is_sending = False
        self._scripts = {each.model: each for each in scripts}
        self.answer: Answer[Script, Parts, ScriptedOutput]

    async def prepare(self) -> None:
        attempts = Attempts(
            [*self._scripts],
            self._plan,
            self.services.lookup,
            self.services.metrics,
            self.services.limiter,
        )
        with attempts:
            plan = await attempts.begin()
            self.answer = Answer(plan, self.services, self.scope, self._output_of, attempts)
            await self.answer.prepare()

    async def _plan(self, model: str | None) -> Script:
        assert model is not None
        script = self._scripts[model]
        if script.unplanned is not None:
            raise script.unplanned
        return script

    def _output_of(self, plan: Script, _before: ScriptedOutput | None) -> ScriptedOutput:
        return ScriptedOutput(plan, self.services, self.calls)

    async def send(self, parts: Parts) -> None:
        self.is_sending = True
        await self.may_send.wait()
        self.sent += parts

    async def run(self) -> Parts | None:
        await self.prepare()
        return await self.answer.run(self.send)


def calls(model: str, methods: str) -> list[str]:
    return [f"{model} {method}" for method in methods.split()]


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    config = Config(
        server=ServerConfig(ping_interval=0.01), models={"first": model, "second": model}
    )
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        yield await open_services(config, plugins, stack)


Make = Callable[..., Case]


@pytest.fixture
def make(services: Services) -> Make:
    return lambda *scripts: Case(services, scripts)


async def test_the_methods_of_an_output_are_called_in_order(make: Make) -> None:
    case = make(Script())
    end = await case.run()
    assert case.calls == calls("first", "prepare start begin make finish keep report terminal")
    assert case.sent == calls("first", "start")
    assert end == calls("first", "make finish terminal")
    assert (case.scope.error, case.scope.stats.status) == (None, "completed")
    assert not case.answer.output.replaces_started


async def test_the_next_model_answers_after_a_failure_before_any_output(make: Make) -> None:
    case = make(Script(fails=AWAY), Script(model="second"))
    end = await case.run()
    assert case.calls == [
        *calls("first", "prepare start begin make"),
        *calls("second", "prepare start begin make finish keep report terminal"),
    ]
    assert case.sent == calls("second", "start")
    assert end == calls("second", "make finish terminal")
    assert case.answer.model is case.services.models["second"]
    assert case.answer.output.replaces_started
    assert not case.answer.refused
    assert case.scope.error is None


async def test_a_model_that_cannot_be_prepared_is_replaced_before_the_answer_starts(
    make: Make,
) -> None:
    case = make(Script(unprepared=AWAY), Script(model="second"))
    await case.run()
    assert case.calls[:3] == ["first prepare", "second prepare", "second start"]
    assert not case.answer.output.replaces_started


async def test_the_start_of_a_failed_attempt_is_kept_if_the_next_plan_cannot_be_made(
    make: Make,
) -> None:
    refusal = InvalidRequest("The model has no such parameter.")
    case = make(Script(fails=AWAY), Script(model="second", unplanned=refusal))
    end = await case.run()
    assert case.sent == []
    assert end == calls("first", "start fail terminal")
    assert case.scope.error is AWAY
    assert case.answer.refused


async def test_the_start_of_a_failed_attempt_is_dropped_if_the_next_plan_can_be_made(
    make: Make,
) -> None:
    refusal = InvalidRequest("The prompt is empty.")
    case = make(Script(fails=AWAY), Script(model="second", unprepared=refusal))
    end = await case.run()
    assert case.sent == []
    assert end == calls("second", "fail terminal")
    assert case.scope.error is AWAY
    assert case.answer.refused


@pytest.mark.parametrize("script", [Script(began=True), Script(releases=True)])
async def test_nothing_is_tried_again_after_output(make: Make, script: Script) -> None:
    script.fails = AWAY
    case = make(script, Script(model="second"))
    end = await case.run()
    assert case.calls == calls("first", "prepare start begin make fail keep report terminal")
    assert [*case.sent, *(end or [])] == calls("first", "start fail terminal")
    assert case.scope.error is AWAY
    assert case.scope.stats.status == "failed"


async def test_a_release_of_the_start_is_awaited_before_the_end_is_returned(make: Make) -> None:
    """The start is released after a time. Its client may be slow to read it while the answer fails."""
    may_fail = asyncio.Event()
    case = make(Script(holds=True, waits_for=may_fail, fails=AWAY))
    case.may_send.clear()
    running = asyncio.create_task(case.run())
    await wait_until_async(lambda: case.is_sending)
    may_fail.set()
    await wait_until_async(lambda: "first keep" in case.calls)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done()
    case.may_send.set()
    assert await running == calls("first", "fail terminal")
    assert case.sent == calls("first", "start")
    assert not case.answer.refused


async def test_a_cancelled_task_keeps_the_answer_once(make: Make) -> None:
    case = make(Script(waits_for=asyncio.Event()))
    running = asyncio.create_task(case.run())
    await wait_until_async(lambda: "first make" in case.calls)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert case.calls == calls("first", "prepare start begin make cancel keep report")
    assert (case.scope.error, case.scope.stats.status) == (None, "cancelled")
    assert case.scope not in case.services.runs


async def test_an_answer_that_another_process_reports_has_no_end_here(make: Make) -> None:
    case = make(Script(keeps=False))
    assert await case.run() is None
    assert case.calls == calls("first", "prepare start begin make finish keep")
    assert case.scope.is_finished


async def test_a_background_answer_that_cannot_be_stored_is_raised_and_failed(make: Make) -> None:
    away = StoreUnavailable("The store is away.")
    case = make(Script(in_background=True, not_kept=away))
    with pytest.raises(StoreUnavailable):
        await case.run()
    assert case.calls == calls("first", "prepare start begin make finish keep")
    assert case.scope.error is away
    assert case.scope.stats.status == "failed"
    assert case.scope not in case.services.runs
