"""Another configuration in a running gateway: tools, media, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import ConfigurationError
from gateway.config import Config, load_config
from gateway.engines.process.client import ProcessEngine
from gateway.plugins.protocols import (
    NoConfig,
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
)
from gateway_testing.server import RunningGateway, run_gateway, to_toml
from tests.waiting import wait_until_async


class WordConfig(Struct, forbid_unknown_fields=True):
    word: str = "one"
    fails: bool = False


class Word(ToolServer):
    """Says a word, once it may."""

    label = "word"

    def __init__(self, word: str, house: House) -> None:
        self._word = word
        self._house = house

    async def tools(self) -> list[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name="say"))]

    async def call(self, call: ToolCall) -> ToolResult:
        self._house.called.set()
        await self._house.may_answer.wait()
        assert f"close {self._word}" not in self._house.events, "it is closed while it is used"
        return ToolResult(text=self._word)


class House:
    """A plugin with the tool."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()

    @asynccontextmanager
    async def open(self, config: WordConfig) -> AsyncIterator[Word]:
        if config.fails:
            raise ConfigurationError("The word fails.")
        self.events.append(f"open {config.word}")
        async with asyncio.TaskGroup():  # has to be left in the task that entered it
            yield Word(config.word, self)
        self.events.append(f"close {config.word}")

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("word", self.open, config=WordConfig)


RULES = [
    {"when": "say it", "pieces": [{"call": {"name": "say", "arguments": {}}}]},
    {"when": "one", "pieces": [{"text": "It was one."}]},
    {"when": "two", "pieces": [{"text": "It was two."}]},
]
MODEL = {"engine": "scripted", "scripted": {"rules": RULES}}


def read(folder: Path, tables: dict[str, Any]) -> Config:
    path = folder / "changed.toml"
    path.write_text(to_toml(tables))
    return load_config(path, {}, server={"port": 0})


def reload(running: RunningGateway, folder: Path, tables: dict[str, Any]) -> None:
    assert running.services.reload is not None
    running.run(running.services.reload(read(folder, tables)))


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def running(tmp_path: Path, house: House) -> Iterator[RunningGateway]:
    config = {"tools": {"word": {}}, "models": {"m": MODEL}}
    with run_gateway(config, tmp_path, plugins=[house]) as gateway:
        yield gateway


async def set_event(event: asyncio.Event) -> None:
    event.set()


def ask(running: RunningGateway) -> str:
    body = {"model": "m", "input": "say it"}
    answer = httpx.post(f"{running.base_url}/responses", json=body, timeout=60).json()
    return str(answer["output"][-1]["content"][0]["text"])


def test_a_tool_is_closed_when_the_requests_that_use_it_have_ended(
    running: RunningGateway, tmp_path: Path, house: House
) -> None:
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(ask, running)
        running.run(asyncio.wait_for(house.called.wait(), 60))
        reload(running, tmp_path, {"tools": {"word": {"word": "two"}}, "models": {"m": MODEL}})
        assert house.events == ["open one", "open two"]
        running.run(set_event(house.may_answer))
        assert early.result(60) == "It was one."
        assert ask(running) == "It was two."
        running.run(wait_until_async(lambda: "close one" in house.events))
    assert house.events == ["open one", "open two", "close one"]


def test_an_unchanged_tool_stays_open_and_a_removed_one_is_closed(
    running: RunningGateway, tmp_path: Path, house: House
) -> None:
    engine = running.services.models["m"].engine
    changed = {**MODEL, "description": "The same."}
    reload(running, tmp_path, {"tools": {"word": {}}, "models": {"m": changed}})
    assert house.events == ["open one"]
    assert running.services.models["m"].engine is engine
    assert running.services.models["m"].config.description == "The same."
    reload(running, tmp_path, {"models": {"m": MODEL}})
    running.run(wait_until_async(lambda: house.events == ["open one", "close one"]))
    assert not running.services.models["m"].tools.always


@pytest.mark.parametrize(
    "tables",
    [
        {"tools": {"word": {"fails": True}}, "models": {"m": MODEL}},
        {"tools": {"word": {"word": "two"}}, "models": {"m": {**MODEL, "path": "/not/there"}}},
        {"tools": {"word": {"word": "two", "other": 1}}, "models": {"m": MODEL}},
        {"tools": {"word": {}}, "models": {"m": {**MODEL, "allowed_tools": ["other"]}}},
        {
            "tools": {"word": {}},
            "models": {"n": {"engine": "scripted", "scripted": {"adapters": ["m"]}}, "m": MODEL},
        },
    ],
)
def test_what_cannot_be_opened_changes_nothing(
    running: RunningGateway, tmp_path: Path, house: House, tables: dict[str, Any]
) -> None:
    services = running.services
    before = (services.config, dict(services.models), services.tool_tables, services.aliases)
    with pytest.raises(ConfigurationError):
        reload(running, tmp_path, tables)
    assert before == (
        services.config, dict(services.models), services.tool_tables, services.aliases
    )  # fmt: skip
    opened = [event for event in house.events if event.startswith("open")]
    closed = [event for event in house.events if event.startswith("close")]
    assert len(opened) - len(closed) == 1, "what was opened for it is closed again"
    running.run(set_event(house.may_answer))
    assert ask(running) == "It was one."


class Door:
    """A plugin with an authenticator, which finds nobody."""

    @asynccontextmanager
    async def open(self, config: NoConfig) -> AsyncIterator[Door]:
        yield self

    async def authenticate(self, request: Any) -> None:
        return None

    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        register("door", self.open)


@pytest.mark.parametrize("authenticated", [True, False])
def test_a_public_server_needs_no_keys_if_an_authenticator_runs(
    tmp_path: Path, authenticated: bool
) -> None:
    doors: dict[str, Any] = {"authenticators": {"door": {}}}
    tables = {"models": {"m": MODEL}, **(doors if authenticated else {})}
    public = {**tables, **doors, "server": {"host": "0.0.0.0"}}
    with run_gateway(tables, tmp_path, plugins=[Door()]) as running:
        if authenticated:
            reload(running, tmp_path, public)
        else:
            with pytest.raises(ConfigurationError, match="there are no API keys"):
                reload(running, tmp_path, public)


def test_a_model_that_was_deleted_comes_back(running: RunningGateway, tmp_path: Path) -> None:
    assert httpx.delete(f"{running.base_url}/models/m").status_code == 200
    assert not running.services.models
    reload(running, tmp_path, {"tools": {"word": {}}, "models": {"m": MODEL}})
    assert list(running.services.models) == ["m"]


def test_a_model_that_sees_can_be_added(running: RunningGateway, tmp_path: Path) -> None:
    assert running.services.media is None
    seeing = {"engine": "scripted", "scripted": {"media": ["image"]}}
    reload(running, tmp_path, {"models": {"m": MODEL, "seeing": seeing}})
    assert running.services.media is not None


def test_a_model_on_demand_waits_for_a_request(running: RunningGateway, tmp_path: Path) -> None:
    lazy = {**MODEL, "load": "on_demand", "max_model_len": 4000}
    reload(running, tmp_path, {"models": {"m": lazy, "n": lazy}})
    slots = running.services.slots.slots
    running.run(wait_until_async(lambda: all(slot.state == "unloaded" for slot in slots.values())))
    answer = httpx.post(
        f"{running.base_url}/responses", json={"model": "n", "input": "Hi"}, timeout=60
    )
    assert answer.status_code == 200
    assert [slots[name].state for name in ("m", "n")] == ["unloaded", "loaded"]


def test_another_number_of_workers_moves_no_engine_before_the_restart(
    running: RunningGateway, tmp_path: Path
) -> None:
    tables = {"server": {"workers": 2}, "models": {"m": MODEL, "new": MODEL}}
    slot = running.services.slots.slots["m"]
    reload(running, tmp_path, {**tables, "tools": {"word": {}}})
    slots = running.services.slots.slots
    assert slots["m"] is slot
    assert not isinstance(slots["new"].served[0].engine, ProcessEngine)
