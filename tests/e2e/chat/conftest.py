"""A gateway in a thread whose engines the tests can reach, with a tool that chat may use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import msgspec
import pytest
from openai import OpenAI

from gateway import hookimpl
from gateway.tools.functions import functions
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
RULES: list[dict[str, Any]] = [
    {"when": "weather in Paris", "pieces": [
        {"reasoning": "There is a tool."},
        {"call": {"name": "get_weather", "arguments": {"city": "Paris"}}}]},
    {"when": "two cities", "pieces": [
        {"text": "I look at both."},
        {"call": {"name": "get_weather", "arguments": {"city": "Oslo"}}},
        {"call": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
    {"when": "18 degrees", "pieces": [{"text": "It is 18 degrees."}]},
    {"when": "think first", "pieces": [{"reasoning": "Hm.\nWell."}, {"text": "Done thinking."}]},
    {"when": "take a note", "pieces": [{"custom_call": {"name": "note", "input": "line 1\nline \"2\""}}]},
    {"when": "person as json", "pieces": [{"text": "{\"name\": \"Ada\", \"age\": 36}"}]},
    {"when": "roll the dice", "pieces": [
        {"reasoning": "I shall roll."}, {"text": "Rolling."},
        {"call": {"name": "roll", "arguments": {"sides": 6}}}]},
    {"when": "rolled 4 of 6", "pieces": [{"text": "It is a four."}]},
    {"when": "go slowly", "delay_ms": 20, "repeat": 200, "pieces": [{"text": "slow words "}]},
    {"when": "never stop", "delay_ms": 20, "repeat": 5000, "pieces": [{"text": "slow words "}]},
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins well"}]},
    {"when": "fail at once", "finish": "error", "pieces": []},
    {"when": "filter it", "finish": "content_filter", "pieces": [{"text": "Ahem"}]},
    {"when": "half a call", "finish": "length", "pieces": [
        {"raw": "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"}]},
    {"when": "Once upon", "pieces": [{"text": " a time."}]},
]  # fmt: skip


def roll(sides: int) -> str:
    """Roll a die."""
    return f"rolled 4 of {sides}"


class AdaptedEngine(ScriptedEngine):
    """A scripted engine with a LoRA adapter."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self._info = msgspec.structs.replace(self._info, adapters=("tuned",))


class PoorEngine(ScriptedEngine):
    """A scripted engine that can enforce nothing, and scores no prompt."""

    @property
    def capabilities(self) -> frozenset[Literal["tokens", "logprobs"]]:  # type: ignore[override]
        return frozenset({"tokens", "logprobs"})


class TestPlugin:
    """What the tests bring along."""

    @asynccontextmanager
    async def adapted(self, config: Any, context: Any) -> AsyncIterator[ScriptedEngine]:
        yield AdaptedEngine(name=context.name)

    @asynccontextmanager
    async def poor(self, config: Any, context: Any) -> AsyncIterator[ScriptedEngine]:
        yield PoorEngine(name=context.name)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("adapted", self.adapted)
        register("poor", self.poor)

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("dice", functions("dice", roll))


CONFIG = {
    "server": {"chat_tools": ["dice"]},
    "tools": {"dice": {}},
    "models": {
        "scripted": {"engine": "scripted", "scripted": {"rules": RULES}},
        "trusting": {
            "engine": "scripted",
            "trust_request_chat_template": True,
            "scripted": {"rules": RULES},
        },
        "property": {"engine": "scripted"},
        "base": {"engine": "adapted"},
        "poor": {"engine": "poor"},
    },
}


@pytest.fixture(scope="session")
def chat_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("chat")
    with run_gateway(CONFIG, folder, plugins=[TestPlugin()]) as gateway:
        yield gateway


@pytest.fixture
def sdk(chat_gateway: RunningGateway) -> Iterator[OpenAI]:
    with chat_gateway.client() as client:
        yield client


@pytest.fixture
def raw(chat_gateway: RunningGateway) -> Iterator[httpx.Client]:
    """Paths begin at the server's root."""
    with httpx.Client(base_url=chat_gateway.base_url.removesuffix("/v1"), timeout=60) as client:
        yield client


@pytest.fixture
def engine(chat_gateway: RunningGateway) -> ScriptedEngine:
    """The engine of the model `scripted`."""
    found = chat_gateway.services.models["scripted"].engine
    assert isinstance(found, ScriptedEngine)
    return found
