"""One lifecycle of all runs: whatever ends the work, it ends once, is told, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import Context

import pytest

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.access.admission import Admission
from gateway.answers.run_scope import RunScope
from gateway.base.errors import DeadlineExceeded, EngineError, GatewayError, ServerShuttingDown
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.services import Services
from gateway.startup.service_opening import open_services

pytestmark = pytest.mark.anyio

PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
Work = Callable[[], Awaitable[object]]


@pytest.fixture
def request_timeout() -> float:
    """The deadline of a run: one that no machine reaches, where a test does not name another."""
    return 600.0


SOON = pytest.mark.parametrize("request_timeout", [0.2])


@pytest.fixture
async def services(request_timeout: float) -> AsyncIterator[Services]:
    model = ModelConfig(
        engine="scripted",
        renderer="chat_template",
        parser="plain",
        max_running=1,
        max_waiting=1,
    )
    config = Config(server=ServerConfig(request_timeout=request_timeout), models={"m": model})
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        yield await open_services(config, plugins, stack)


@pytest.fixture
def admission(services: Services) -> Admission:
    return services.models["m"].admission


@pytest.fixture
def scope(services: Services) -> RunScope:
    made = RunScope(services, name="the test's run", api="test")
    made.reserve(services.models["m"])
    return made


async def carry_out(scope: RunScope, work: Work) -> None:
    """What a run does with its scope."""
    with scope, scope.stoppable():
        async with scope.slot:
            await work()


async def forever() -> None:
    await asyncio.sleep(600)


async def started(work: Awaitable[None]) -> asyncio.Task[None]:
    task = asyncio.ensure_future(work)
    for _ in range(20):  # the loop's turns, which do not depend on time
        await asyncio.sleep(0)
    assert isinstance(task, asyncio.Task)
    return task


def places(admission: Admission) -> tuple[int, int]:
    return admission.running, admission.waiting


async def test_work_that_ends_well_is_neither_failed_nor_cancelled(
    scope: RunScope, services: Services, admission: Admission
) -> None:
    found: list[object] = []

    async def work() -> None:
        found.extend([set(services.runs), places(admission)])

    await carry_out(scope, work)
    assert found == [{scope}, (1, 0)]
    assert (scope.error, scope.cancelled) == (None, False)
    assert (services.runs, places(admission)) == (set(), (0, 0))


async def test_a_run_is_registered_until_what_follows_its_work_is_done(
    scope: RunScope, services: Services
) -> None:
    with scope:
        with scope.stoppable():
            async with scope.slot:
                pass
        assert services.runs == {scope}
    assert not services.runs


async def test_work_that_is_stopped_fails_with_the_error(
    scope: RunScope, services: Services, admission: Admission
) -> None:
    task = await started(carry_out(scope, forever))
    error = ServerShuttingDown("over")
    services.stop_runs(error)
    services.stop_runs(ServerShuttingDown("the second is not heard"))
    await task
    assert scope.error is error
    assert not scope.cancelled
    assert task.cancelling() == 0
    assert (services.runs, places(admission)) == (set(), (0, 0))


async def test_work_that_is_cancelled_has_no_error(scope: RunScope, admission: Admission) -> None:
    task = await started(carry_out(scope, forever))
    scope.cancel()
    scope.cancel()
    await task
    assert (scope.error, scope.cancelled) == (None, True)
    assert task.cancelling() == 0
    assert places(admission) == (0, 0)


async def test_of_stop_and_cancel_the_first_counts(scope: RunScope) -> None:
    task = await started(carry_out(scope, forever))
    error = ServerShuttingDown("over")
    scope.stop(error)
    scope.cancel()
    await task
    assert (scope.error, scope.cancelled) == (error, False)


async def test_a_cancellation_before_the_work_is_found_by_it(scope: RunScope) -> None:
    scope.cancel()
    found: list[bool] = []

    async def work() -> None:
        await asyncio.sleep(0)
        found.append(scope.cancelled)

    await carry_out(scope, work)
    assert found == [True]


async def test_nothing_stops_a_run_before_its_work_or_after_it(scope: RunScope) -> None:
    scope.stop(ServerShuttingDown("too early"))
    with scope:
        with scope.stoppable():
            async with scope.slot:
                pass
        scope.stop(ServerShuttingDown("too late"))
        scope.cancel()
        await asyncio.sleep(0)  # here a cancellation of the task would be raised
    assert scope.error is None


@SOON
async def test_the_deadline_ends_the_work(services: Services, admission: Admission) -> None:
    scope = RunScope(services, name="the test's run", api="test", subject="The embeddings")
    scope.reserve(services.models["m"])
    await carry_out(scope, forever)
    assert isinstance(scope.error, DeadlineExceeded)
    assert scope.error.message == (
        "The embeddings took longer than 0.2 seconds, which is this server's limit."
    )
    assert places(admission) == (0, 0)


@SOON
async def test_the_deadline_counts_the_time_in_the_queue(
    scope: RunScope, services: Services, admission: Admission
) -> None:
    other = RunScope(services, name="another run", api="test")
    other.reserve(services.models["m"])
    async with other.slot:
        # For another request than the one that holds the place.
        await asyncio.create_task(carry_out(scope, forever), context=Context())
        assert isinstance(scope.error, DeadlineExceeded)
        assert places(admission) == (1, 0)


async def test_the_deadline_is_for_the_work_alone(
    scope: RunScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scope:
        with scope.stoppable():
            async with scope.slot:
                pass
        loop = asyncio.get_running_loop()
        now = loop.time
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: now() + 3600)
            for _ in range(20):  # every timer is due
                await asyncio.sleep(0)
    assert scope.error is None


async def test_the_cancellation_of_a_client_that_left_is_raised(
    scope: RunScope, services: Services, admission: Admission
) -> None:
    task = await started(carry_out(scope, forever))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert (scope.error, scope.cancelled) == (None, False)
    assert (services.runs, places(admission)) == (set(), (0, 0))


async def test_an_error_with_a_meaning_is_told_and_not_logged(
    scope: RunScope, admission: Admission, caplog: pytest.LogCaptureFixture
) -> None:
    error = EngineError("The engine is gone.")

    async def work() -> None:
        raise error

    await carry_out(scope, work)
    assert scope.error is error
    assert not caplog.records
    assert places(admission) == (0, 0)


async def test_a_mistake_of_ours_is_logged_once_and_told_as_that(
    scope: RunScope, admission: Admission, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        raise ZeroDivisionError("secret")

    await carry_out(scope, work)
    assert type(scope.error) is GatewayError
    assert scope.error.status == 500
    assert scope.error.message == "The server had an internal error on this request."
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "the test's run failed")
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert places(admission) == (0, 0)


async def test_what_is_no_failure_of_the_work_passes_through(
    scope: RunScope, services: Services, admission: Admission
) -> None:
    with pytest.raises(GeneratorExit), scope, scope.stoppable():
        raise GeneratorExit
    assert scope.error is None
    assert (services.runs, places(admission)) == (set(), (0, 0))


@pytest.mark.parametrize("ending", ["unused", "returns", "fails", "leaves", "is stopped", "waits"])
async def test_the_place_in_the_queue_is_given_back_once(
    ending: str, scope: RunScope, services: Services, admission: Admission
) -> None:
    assert places(admission) == (0, 1)
    match ending:
        case "unused":
            pass
        case "returns":
            await carry_out(scope, lambda: asyncio.sleep(0))
        case "fails":
            with scope, scope.stoppable():
                raise EngineError("before the turn")
        case "leaves" | "is stopped":
            task = await started(carry_out(scope, forever))
            if ending == "leaves":
                task.cancel()
            else:
                services.stop_runs(ServerShuttingDown("over"))
            await asyncio.wait([task])
        case "waits":
            async with admission.reserve():
                task = await started(carry_out(scope, forever))
                assert places(admission) == (1, 1)
                task.cancel()
                await asyncio.wait([task])
                assert places(admission) == (1, 0)
    scope.abandon()
    scope.abandon()
    assert places(admission) == (0, 0)


async def test_a_place_that_another_one_replaces_is_given_back(
    scope: RunScope, services: Services, admission: Admission
) -> None:
    assert places(admission) == (0, 1)
    scope.reserve(services.models["m"])
    assert places(admission) == (0, 1)
    scope.abandon()
    assert places(admission) == (0, 0)
