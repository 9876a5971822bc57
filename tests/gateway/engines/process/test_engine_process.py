"""Engines in processes of their own: shared, left, killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError, EngineUnavailable, RateLimited
from gateway.engines.process import starting
from gateway.engines.process.client import ProcessEngine, engine_in_process
from gateway.engines.process.messages import QueueLimits
from gateway.engines.process.starting import EngineProcesses, HostSettings
from gateway.plugins.protocols import (
    AdapterLoadingEngine,
    EngineOutput,
    EngineRequest,
    Principal,
    Sampling,
    TokensPrompt,
)
from tests.gateway.engines.process.conftest import spec_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LONG = "word " * 400


@pytest.fixture
async def processes(anyio_backend: str) -> AsyncIterator[EngineProcesses]:
    made = EngineProcesses(HostSettings(end_seconds=2.0))
    yield made
    await made.close()


@pytest.fixture
async def stack(processes: EngineProcesses) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


def running(processes: EngineProcesses) -> list[int]:
    """The process ids."""
    return [each.running.pid for each in processes._processes.values() if each.running is not None]


def request(engine: ProcessEngine, text: str = LONG) -> EngineRequest:
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode(text)
    sampling = Sampling(max_tokens=2000, ignore_eos=True, temperature=0.0)
    return EngineRequest(
        request_id=os.urandom(8).hex(), prompt=TokensPrompt(token_ids=ids), sampling=sampling
    )


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110  # another process has no event to wait for
            await asyncio.sleep(0.02)


async def is_healthy(engine: ProcessEngine) -> bool:
    try:
        await engine.health()
    except EngineUnavailable:
        return False
    return True


async def test_equal_specifications_share_a_process_and_the_last_one_ends_it(
    processes: EngineProcesses,
) -> None:
    spec = spec_of("scripted")
    async with engine_in_process(spec, processes) as one:
        async with engine_in_process(spec, processes) as other:
            assert len(running(processes)) == 1
            async with engine_in_process(spec_of("scripted", delay_ms=1), processes):
                assert len(running(processes)) == 2
        await one.health()
        with pytest.raises(EngineUnavailable):
            await other.health()
    await until(lambda: none_runs(processes))


async def none_runs(processes: EngineProcesses) -> bool:
    return not running(processes)


async def test_a_server_process_that_is_gone_frees_what_it_used(
    processes: EngineProcesses, stack: AsyncExitStack
) -> None:
    """The engine has one slot, which the other's request waits for."""
    spec = spec_of("llamacpp", n_parallel=1, n_ctx=4096)
    gone = await stack.enter_async_context(engine_in_process(spec, processes))
    stays = await stack.enter_async_context(engine_in_process(spec, processes))
    first = gone.generate(request(gone, "Say something"))
    await anext(first)
    waiting = stays.generate(request(stays, "Say something"))
    next_output = asyncio.ensure_future(anext(waiting))
    gone._link.connection._transport.abort()  # type: ignore[union-attr]
    assert (await next_output).token_ids
    with pytest.raises(EngineUnavailable):
        while True:
            await anext(first)
    await waiting.aclose()


async def test_a_killed_process_fails_its_requests_and_is_started_again(
    processes: EngineProcesses, stack: AsyncExitStack
) -> None:
    engine = await stack.enter_async_context(
        engine_in_process(spec_of("scripted", delay_ms=5), processes)
    )
    assert engine.tokenizer is not None
    stream = engine.generate(request(engine))
    await anext(stream)
    [process] = running(processes)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(EngineUnavailable, match="process has ended"):
        while True:
            await anext(stream)
    with pytest.raises(EngineUnavailable, match="started again"):
        await engine.health()
    with pytest.raises(EngineUnavailable, match="started again"):
        await engine.check(EngineRequest(request_id="a", prompt=TokensPrompt(token_ids=[1])))
    with pytest.raises(EngineUnavailable, match="started again"):
        engine.tokenizer.encode("Hi")
    await until(lambda: is_healthy(engine))
    assert running(processes) != [process]
    async with aclosing(engine.generate(request(engine, "again"))) as outputs:
        said = "".join([output.text async for output in outputs])
    assert "again" in said


@pytest.mark.parametrize("limits", [None, QueueLimits(max_running=4, max_waiting=4)])
async def test_a_process_that_is_told_to_end_finishes_what_runs_and_takes_nothing_new(
    limits: QueueLimits | None,
) -> None:
    # Only the end of what runs ends it within the test.
    processes = EngineProcesses(HostSettings(end_seconds=600.0))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(processes.close)
        spec = spec_of("scripted", delay_ms=100)
        engine = await stack.enter_async_context(engine_in_process(spec, processes, limits))
        other = await stack.enter_async_context(engine_in_process(spec, processes, limits))
        place = None
        if engine.queue is not None:
            place = await engine.queue.reserve(None, 10, several=False)
            await place.begin()
        keeps_on = engine.generate(request(engine, 4 * LONG))  # for minutes
        await anext(keeps_on)
        ends = engine.generate(request(engine, "word " * 20))
        await anext(ends)
        [process] = running(processes)
        os.kill(process, signal.SIGTERM)
        async with asyncio.timeout(60):
            while await is_healthy(engine):
                pass
        for each in (engine, other):
            with pytest.raises(EngineUnavailable, match="about to end"):
                await begin(each)
        last = [output.finish_reason async for output in ends][-1]
        assert last == "stop"
        assert running(processes) == [process]
        await keeps_on.aclose()
        if place is not None:
            place.end()
        for each in (engine, other):
            await until(lambda each=each: is_healthy(each))
            await begin(each)
        assert running(processes) != [process]


async def begin(engine: ProcessEngine) -> None:
    """Begin a request, as a server process does, and leave it."""
    if engine.queue is not None:
        (await engine.queue.reserve(None, 10, several=False)).end()
        return
    async with aclosing(engine.generate(request(engine))) as outputs:
        await anext(outputs)


async def test_adapters_are_loaded_again_before_requests_use_the_new_process(
    processes: EngineProcesses,
    stack: AsyncExitStack,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """But not those that were unloaded. One that is not there any more is left out, and the log names it."""
    engine = await stack.enter_async_context(engine_in_process(spec_of("scripted"), processes))
    assert isinstance(engine, AdapterLoadingEngine)
    for name in ("kept", "lost", "unloaded"):
        (tmp_path / name).mkdir()
        await engine.load_adapter(name, str(tmp_path / name))
    await engine.unload_adapter("unloaded")
    (tmp_path / "lost").rmdir()
    [process] = running(processes)
    os.kill(process, signal.SIGKILL)
    await until(lambda: is_replaced(engine, processes, process))
    assert engine.info.adapters == ("kept",)
    assert engine.tokenizer is not None
    ids = engine.tokenizer.encode("Hi")
    with_adapter = EngineRequest(
        request_id="a", prompt=TokensPrompt(token_ids=ids), adapter="kept", sampling=Sampling()
    )
    async with aclosing(engine.generate(with_adapter)) as outputs:
        assert [output async for output in outputs]
    assert "the adapter lost could not be loaded again" in caplog.text
    assert "unloaded" not in caplog.text
    await engine.unload_adapter("lost")
    await engine.unload_adapter("kept")
    assert engine.info.adapters == ()


async def is_replaced(engine: ProcessEngine, processes: EngineProcesses, process: int) -> bool:
    return await is_healthy(engine) and running(processes) != [process]


async def test_a_process_that_dies_again_and_again_is_given_up(
    processes: EngineProcesses, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "MAX_FAILURES", 2)
    engine = await stack.enter_async_context(engine_in_process(spec_of("scripted"), processes))
    for _ in range(2):
        await until(lambda: is_healthy(engine))
        [process] = running(processes)
        os.kill(process, signal.SIGKILL)
        await until(lambda: is_unhealthy(engine))
    message = ""
    async with asyncio.timeout(60):
        while "not started again" not in message:
            await asyncio.sleep(0.02)
            with pytest.raises(EngineUnavailable) as refused:
                await engine.health()
            message = refused.value.message
    assert "restart the server" in message
    with pytest.raises(ConfigurationError, match="not started again"):
        async with engine_in_process(spec_of("scripted"), processes):
            pass


async def is_unhealthy(engine: ProcessEngine) -> bool:
    return not await is_healthy(engine)


async def test_a_model_that_cannot_be_opened_is_one_sentence(processes: EngineProcesses) -> None:
    spec = spec_of("llamacpp", path="/nowhere.gguf")
    with pytest.raises(ConfigurationError, match=r"nowhere\.gguf"):
        async with engine_in_process(spec, processes):
            pass
    await until(lambda: none_runs(processes))


async def test_an_engine_of_messages_is_refused(processes: EngineProcesses) -> None:
    spec = spec_of("openai", base_url="http://127.0.0.1:9/v1", model="x")
    with pytest.raises(ConfigurationError):
        async with engine_in_process(spec, processes):
            pass


async def test_the_queue_holds_for_all_server_processes(
    processes: EngineProcesses, stack: AsyncExitStack
) -> None:
    limits = QueueLimits(max_running=1, max_waiting=1)
    spec = spec_of("scripted")
    engines = [
        await stack.enter_async_context(engine_in_process(spec, processes, limits))
        for _ in range(3)
    ]
    queues = [engine.queue for engine in engines]
    assert all(queues)
    one, other, third = (queue for queue in queues if queue is not None)
    somebody = Principal(name="somebody")
    running_place = await one.reserve(somebody, 10, several=False)
    waiting_place = await other.reserve(somebody, 10, several=False)
    with pytest.raises(RateLimited, match="limit of 1 running and 1 waiting") as refused:
        await third.reserve(None, 10, several=False)
    assert int(refused.value.headers["retry-after"]) >= 1
    await running_place.begin()
    begins = asyncio.ensure_future(waiting_place.begin())
    # The first one's process has gone: its place is free.
    engines[0]._link.connection._transport.abort()  # type: ignore[union-attr]
    await begins
    waiting_place.end()
    waiting_place.end()
    waiting_place.used(10, 5)
    again = await third.reserve(None, 10, several=True)
    await again.begin()
    third.resize(QueueLimits(max_running=2, max_waiting=1))
    more = await other.reserve(somebody, 10, several=True)
    await more.begin()
    again.end()
    more.end()


async def test_a_reservation_that_is_cancelled_gives_its_place_back(
    processes: EngineProcesses, stack: AsyncExitStack
) -> None:
    limits = QueueLimits(max_running=1, max_waiting=1)
    engine = await stack.enter_async_context(
        engine_in_process(spec_of("scripted"), processes, limits)
    )
    queue = engine.queue
    assert queue is not None
    first = await queue.reserve(None, 1, several=False)
    for _ in range(5):
        second = await queue.reserve(None, 1, several=False)
        begins = asyncio.ensure_future(second.begin())
        await asyncio.sleep(0)
        begins.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begins
        second.end()
        asked = asyncio.ensure_future(queue.reserve(None, 1, several=False))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    first.end()
    last = await queue.reserve(None, 1, several=False)
    await last.begin()


async def test_many_streams_do_not_mix(processes: EngineProcesses, stack: AsyncExitStack) -> None:
    engine = await stack.enter_async_context(engine_in_process(spec_of("scripted"), processes))

    async def said(number: int) -> str:
        # Without a turn, the engine repeats the last user text.
        text = (
            f"<|im_start|>user\nnumber {number} and nobody else<|im_end|>\n<|im_start|>assistant\n"
        )
        async with aclosing(engine.generate(request(engine, text))) as outputs:
            whole: list[EngineOutput] = [output async for output in outputs]
        assert [each.finish_reason for each in whole[:-1]] == [None] * (len(whole) - 1)
        return "".join(each.text for each in whole)

    answers = await asyncio.gather(*(said(number) for number in range(200)))
    for number, answer in enumerate(answers):
        assert f"number {number} and" in answer
