"""Sandboxes are shared between owners: no key takes all of them, and who waits is served in turns."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.access import hash_key
from gateway_container.config import MIB, ContainersConfig
from gateway_container.container import Container
from gateway_container.containers import Containers
from gateway_container.jail.spec import SandboxLimits
from gateway_container.library.database import ContainerDatabase
from gateway_container.places import Places
from gateway_container.sandbox.budget import Budget, open_budget
from gateway_container.sandbox.isolation import Launch
from gateway_container.sandbox.process import Sandbox, SandboxEnded
from gateway_testing.server import run_gateway
from tests.plugins.sandboxed import or_skip
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


class Unused:
    """An isolation whose sandboxes are not started."""

    description = "nothing"

    def launch(self, name: str, limits: SandboxLimits) -> Launch:
        raise NotImplementedError

    def memory(self, limits: SandboxLimits) -> int:
        return limits.memory


class FakeSandbox(Sandbox):
    """A sandbox without a process."""

    def __init__(self) -> None:
        self._ended = None

    async def close(self) -> None:
        await asyncio.sleep(0)


class FakeContainers(Containers):
    """Containers whose sandboxes are none."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.uses: list[Held] = []

    async def _start(self, container: Container) -> Sandbox:
        await asyncio.sleep(0)
        return FakeSandbox()

    async def place(self, owner: str) -> Held:
        """A container in use."""
        held = Held(self, self.new(owner))
        await held.take()
        self.uses.append(held)
        return held


class Held:
    """One use of a container, as that of a response."""

    def __init__(self, containers: FakeContainers, container: Container) -> None:
        self.container = container
        self._containers = containers
        self._stack = AsyncExitStack()

    async def take(self) -> None:
        try:
            await self._stack.enter_async_context(self._containers.used(self.container))
            await self._containers._sandbox(self.container)
        except BaseException:
            await self._stack.aclose()
            raise

    async def end(self) -> None:
        await self._stack.aclose()


Open: TypeAlias = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open containers: `async with opened(max_running=8) as containers`."""

    async def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr("gateway_container.mirror.Mirror.fill", nothing)

    @asynccontextmanager
    async def open_(*, total: int = 1024, **config: Any) -> AsyncIterator[FakeContainers]:
        """`total`: for how many containers there is memory."""
        settings = ContainersConfig(max_memory_bytes=64 * MIB, **config)
        database = ContainerDatabase(tmp_path)
        with open_budget(total * 64 * MIB, MIB) as budget:
            containers = FakeContainers(settings, Unused(), database, tmp_path, budget)
            try:
                yield containers
            finally:
                for use in containers.uses:
                    await use.end()
                await containers.end_all()
                database.close()

    return open_


def waiting(containers: Containers) -> int:
    return containers._places._slots.are_waiting


@pytest.mark.parametrize("bound", [{"max_running": 8}, {"max_running": 100, "total": 8}])
async def test_an_owner_beyond_its_share_waits_for_its_own(opened: Open, bound: Any) -> None:
    """Whether places or memory are short."""
    async with opened(**bound) as containers:
        hers = [await containers.place("alice") for _ in range(6)]
        seventh = asyncio.create_task(containers.place("alice"))
        await wait_until_async(lambda: waiting(containers) == 1)
        for _ in range(2):
            his = await containers.place("bob")
            assert not seventh.done()
        await his.end()
        assert not seventh.done(), "a place of others is not hers"
        await hers[0].end()
        await seventh


@pytest.mark.parametrize("bound", [{"max_running": 8}, {"max_running": 100, "total": 8}])
async def test_who_waits_is_served_in_turns_by_owner(opened: Open, bound: Any) -> None:
    async with opened(**bound) as containers:
        hers = [await containers.place("alice") for _ in range(6)]
        for _ in range(2):
            await containers.place("carol")
        more = [asyncio.create_task(containers.place("alice")) for _ in range(20)]
        await wait_until_async(lambda: waiting(containers) == 20)
        his = asyncio.create_task(containers.place("bob"))
        await wait_until_async(lambda: waiting(containers) == 21)
        for each in hers[:2]:
            await each.end()
        await his
        assert sum(each.done() for each in more) <= 1
        for each in more:
            each.cancel()
        await asyncio.gather(*more, return_exceptions=True)
        assert waiting(containers) == 0
        for use in containers.uses:
            await use.end()
        for _ in range(6):
            await containers.place("alice")


@pytest.mark.parametrize("bound", [{"max_running": 4}, {"max_running": 100, "total": 4}])
async def test_idle_sandboxes_make_room(opened: Open, bound: Any) -> None:
    async with opened(keep_running=600.0, **bound) as containers:
        for _ in range(3):
            await (await containers.place("alice")).end()
        kept = await containers.place("carol")
        await kept.end()
        his = await containers.place("bob")
        assert kept.container.sandbox is not None, "who has most loses one"
        assert his.container.sandbox is not None
        again = Held(containers, kept.container)
        await again.take()
        assert kept.container.has_place


async def test_a_kept_sandbox_whose_owner_has_no_place_left_waits_too(opened: Open) -> None:
    async with opened(max_running=4, keep_running=600.0) as containers:
        first = await containers.place("alice")
        await first.end()
        for _ in range(3):
            await containers.place("alice")
        again = asyncio.create_task(Held(containers, first.container).take())
        await wait_until_async(lambda: waiting(containers) == 1)
        await containers.place("bob")
        again.cancel()
        await asyncio.wait([again])
        assert first.container.sandbox is None, "bob has its place"


async def test_a_full_queue_and_a_long_wait_are_said(opened: Open) -> None:
    async with opened(max_running=4, max_waiting=2, max_wait=0.2) as containers:
        for _ in range(3):
            await containers.place("alice")
        waits = [asyncio.create_task(containers.place("alice")) for _ in range(2)]
        await wait_until_async(lambda: waiting(containers) == 2)
        with pytest.raises(SandboxEnded, match="as many calls as may wait"):
            await containers.place("alice")
        for each in waits:
            with pytest.raises(SandboxEnded, match=r"3 of the 4 containers .* within 0\.2 seconds"):
                await each
        await containers.place("bob")
        with pytest.raises(SandboxEnded, match=r"All 4 containers .* are in use, and none"):
            await containers.place("bob")


async def test_a_sandbox_that_does_not_start_gives_its_place_back(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(max_running=1, total=1, max_wait=0.2) as containers:

        async def failing(self: Any, container: Container) -> Sandbox:
            raise SandboxEnded("It did not start.")

        with monkeypatch.context() as patched:
            patched.setattr(FakeContainers, "_start", failing)
            for _ in range(3):
                with pytest.raises(SandboxEnded, match="did not start"):
                    await containers.place("alice")
        await containers.place("alice")


async def test_memory_that_cannot_be_reserved_loses_no_place(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as without free descriptors: a call waits for that too, and who gives a place back is not disturbed."""

    def failing(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    async with opened(max_running=2, max_wait=0.1) as containers:
        held = await containers.place("alice")
        with monkeypatch.context() as broken:
            broken.setattr(containers._places._budget, "reserve", failing)
            with pytest.raises(SandboxEnded, match="none became free"):
                await containers.place("bob")
            assert waiting(containers) == 0
            his = asyncio.create_task(containers.place("bob"))
            await wait_until_async(lambda: waiting(containers) == 1)
            await held.end()
            with pytest.raises(SandboxEnded):
                await his
        for owner in ("alice", "bob"):
            await containers.place(owner)


async def test_a_deleted_container_gives_its_place_back(opened: Open) -> None:
    async with opened(max_running=1, total=1) as containers:
        hers = await containers.place("alice")
        await containers.delete(hers.container.id, "alice")
        his = await containers.place("bob")
        await hers.end()
        assert his.container.has_place


STEPS = st.lists(st.tuples(st.sampled_from(["use", "end", "drop"]), st.integers(0, 30)))


@given(steps=STEPS, places=st.integers(1, 6), memory=st.integers(1, 6))
async def test_no_place_is_lost_and_none_is_given_twice(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int]],
    places: int,
    memory: int,
) -> None:
    """Whatever containers are used, left, cancelled or ended in which order."""
    folder = tmp_path_factory.mktemp("budget")
    limits = SandboxLimits(memory=10, disk=1, processes=1, open_files=1, cpu_seconds=1)
    every = [Container("abc"[n % 3], limits, folder) for n in range(9)]
    budget = Budget(10 * memory, folder)

    async def end(container: Container) -> None:
        held = shared.close(container)
        container.sandbox = None
        await asyncio.sleep(0)
        shared.closed(held)

    config = ContainersConfig(max_running=places, max_waiting=9)
    shared = Places(config, Unused(), budget, lambda: every, end)
    taking: dict[Container, asyncio.Task[None]] = {}

    async def take(container: Container) -> None:
        while not container.has_place:
            await shared.take(container)
        if container.sandbox is None:
            container.sandbox = FakeSandbox()

    for step, number in steps:
        container = every[number % len(every)]
        if step == "use" and container not in taking:
            taking[container] = asyncio.create_task(take(container))
        elif step != "use" and (task := taking.pop(container, None)):
            task.cancel()
            await asyncio.wait([task])
            if step == "drop" and container.sandbox is not None:
                await end(container)
            elif container.has_place:
                shared.leave(container)
        for _ in range(number % 5):
            await asyncio.sleep(0)
        held = Counter(each.owner for each in every if each.has_place)
        assert held.total() <= min(places, memory)
        assert shared.running <= min(places, memory)
        assert all(count <= max(1, places - places // 4) for count in held.values())
    for container, task in taking.items():
        task.cancel()
        await asyncio.wait([task])
        if container.has_place:
            shared.leave(container)
    async with asyncio.timeout(60):
        await take(every[0])
    await end(every[0])
    for each in every:
        if each.sandbox is not None:
            await end(each)
    assert budget._reserved().total() == 0
    assert shared.running == 0


KEYS = [{"name": name, "sha256": hash_key(f"{name}-key")} for name in ("alice", "bob")]


@pytest.mark.slow
def test_bobs_code_runs_while_alices_sleeps_in_all_sandboxes_she_may_have(tmp_path: Path) -> None:
    def cell(when: str, code: str) -> dict[str, Any]:
        return {"when": when, "pieces": [{"call": {"name": "python", "arguments": {"code": code}}}]}

    rules = [
        cell("sleep", "import time; time.sleep(600)"),
        cell("compute", "print('product', 6 * 7)"),
        {"when": "product 42", "pieces": [{"text": "It is 42."}]},
    ]
    model = {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}
    config = {
        "server": {"api_keys": KEYS},
        "models": {"m": model},
        "tools": {"python": {"time_limit": 600.0}},
        "resources": {
            "containers": {
                "max_running": 4,
                "max_memory_bytes": 128 * MIB,
                "max_disk_bytes": MIB,
                "max_total_memory_bytes": 8 * 128 * MIB,
                "start_timeout": 60.0,
                "max_wait": 600.0,
            }
        },
    }
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    context = run_gateway(config, tmp_path)
    gateway = or_skip(context.__enter__)
    calling, done = threading.Semaphore(0), threading.Event()
    with (
        httpx.Client(base_url=gateway.base_url, timeout=120) as client,
        ThreadPoolExecutor(12) as threads,
    ):
        body = {"model": "m", "tools": tools}

        def asleep() -> None:
            asked = {**body, "input": "sleep", "stream": True}
            headers = {"authorization": "Bearer alice-key"}
            with client.stream("POST", "/responses", json=asked, headers=headers) as answer:
                for line in answer.iter_lines():
                    if "code_interpreter_call.interpreting" in line:
                        calling.release()
                        done.wait()
                        return

        try:
            hers = [threads.submit(asleep) for _ in range(12)]
            assert all(calling.acquire(timeout=120) for _ in hers)
            for _ in range(2):
                asked = {**body, "input": "compute"}
                headers = {"authorization": "Bearer bob-key"}
                answer = client.post("/responses", json=asked, headers=headers).json()
                assert answer["output"][-1]["content"][0]["text"] == "It is 42."
            assert not any(each.done() for each in hers)
        finally:
            done.set()
    context.__exit__(None, None, None)
