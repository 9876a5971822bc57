"""Where an engine runs: as the configuration says, or as its plugin does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.base.errors import ConfigurationError
from gateway.config import ModelConfig, SchemaLimits
from gateway.engines.process.messages import QueueLimits
from gateway.engines.process.starting import EngineProcesses, HostSettings
from gateway.plugins.hookspecs import hookimpl
from gateway.plugins.loading import load_plugins
from gateway.startup import model_serving
from gateway.startup.model_plan import resolve_model
from gateway.startup.model_serving import EngineUse, slot_of


async def open_nothing(config: Any, context: Any) -> None: ...


class Plugin:
    """Engines of each kind."""

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("plain", open_nothing)
        register("blocking", open_nothing, process="own")
        register("elsewhere", open_nothing, process="server")


PLUGINS = load_plugins(extra=[Plugin()], installed=False)


@pytest.mark.parametrize(
    ("engine", "settings", "workers", "expected"),
    [
        ("plain", {}, 1, "server"),
        ("plain", {"load": "on_demand"}, 1, "server"),
        ("plain", {"process": "own"}, 1, "own"),
        ("plain", {}, 2, "own"),
        ("plain", {"process": "server"}, 2, "server"),
        ("blocking", {}, 1, "server"),
        ("blocking", {"load": "on_demand"}, 1, "own"),
        ("blocking", {"load": "on_demand", "process": "server"}, 1, "server"),
        ("elsewhere", {}, 2, "server"),
        ("elsewhere", {"process": "server"}, 2, "server"),
    ],
)
def test_the_place_of_an_engine(
    engine: str, settings: dict[str, Any], workers: int, expected: str
) -> None:
    config = ModelConfig(engine=engine, **settings)
    assert resolve_model("m", config, PLUGINS, workers=workers).process == expected


def test_an_engine_that_speaks_with_a_server_elsewhere_has_no_process() -> None:
    config = ModelConfig(engine="elsewhere", process="own")
    with pytest.raises(ConfigurationError, match=r"models\.m\.process.*server process only"):
        resolve_model("m", config, PLUGINS)


def test_a_place_that_there_is_not_is_a_mistake_of_the_plugin() -> None:
    class Odd:
        @hookimpl
        def gateway_register_engines(self, register: Any) -> None:
            register("odd", open_nothing, process="moon")

    with pytest.raises(ConfigurationError, match="moon"):
        load_plugins(extra=[Odd()], installed=False)


@pytest.mark.anyio
async def test_limits_that_change_while_the_model_is_opened_reach_the_shared_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[QueueLimits] = []
    engine = SimpleNamespace(queue=SimpleNamespace(resize=told.append))

    @asynccontextmanager
    async def open_engine(
        spec: object, starter: object, limits: QueueLimits
    ) -> AsyncIterator[object]:
        told.append(limits)
        slot.admission.resize(7, 8, scheduling="fifo", max_waiting_per_key=2)
        yield engine

    monkeypatch.setattr(model_serving, "engine_in_process", open_engine)
    monkeypatch.setattr(model_serving, "finish_opening", lambda plan, engine: engine)
    config = ModelConfig(engine="plain", max_running=1, max_waiting=1)
    plan = resolve_model("m", config, PLUGINS, workers=2)
    use = EngineUse(starter=EngineProcesses(HostSettings()), shared=True)
    slot = slot_of(plan, SchemaLimits(), use)
    async with AsyncExitStack() as stack:
        await model_serving._open_in_process(plan, slot, use, stack)
    assert [each.max_running for each in told] == [1, 7]
    assert told[1] == slot.admission.limits


@pytest.mark.anyio
async def test_it_is_told_when_an_engine_is_opened_in_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    @contextmanager
    def opening() -> Iterator[None]:
        told.append("begins")
        yield
        told.append("ends")

    async def open_model(plan: object, stack: object) -> None:
        told.append("opens")

    monkeypatch.setattr(model_serving, "open_model", open_model)
    monkeypatch.setattr(model_serving, "_served", lambda *args: None)
    monkeypatch.setattr(model_serving, "with_adapters", lambda served: [served])
    plan = resolve_model("m", ModelConfig(engine="plain", process="server"), PLUGINS, workers=2)
    use = EngineUse(starter=EngineProcesses(HostSettings()), shared=True, opening=opening)
    slot = slot_of(plan, SchemaLimits(), use)
    async with AsyncExitStack() as stack:
        await slot.open_model(slot, stack)
    assert told == ["begins", "opens", "ends"]


def test_a_model_whose_engine_is_elsewhere_now_is_opened_again() -> None:
    use = EngineUse(starter=EngineProcesses(HostSettings()))
    config = ModelConfig(engine="blocking", max_running=1)
    settings = [
        config,
        replace(config, max_running=2),
        replace(config, load="on_demand"),  # in a process of its own
        replace(config, load="on_demand", process="server"),
    ]
    made = [
        slot_of(resolve_model("m", each, PLUGINS), SchemaLimits(), use).engine_identity
        for each in settings
    ]
    assert [each == made[0] for each in made] == [True, True, False, False]
