"""A gateway in a thread, with scripted models, and the vendor's own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import Anthropic

from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

RULES: list[dict[str, Any]] = [
    {"when": "weather in Paris", "pieces": [
        {"reasoning": "There is a tool."},
        {"call": {"name": "get_weather", "arguments": {"city": "Paris", "note": "é 😀"}}}]},
    {"when": "two cities", "pieces": [
        {"text": "I look at both."},
        {"call": {"name": "get_weather", "arguments": {"city": "Oslo"}}},
        {"call": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
    {"when": "18 degrees", "pieces": [{"text": "It is 18 degrees."}]},
    {"when": "Error: no such city", "pieces": [{"text": "I am sorry."}]},
    {"when": "think first", "pieces": [{"reasoning": "Hm.\nWell."}, {"text": "Done thinking."}]},
    {"when": "count up", "pieces": [{"text": "one two three four five"}]},
    {"when": "person as json", "pieces": [{"text": "{\"name\": \"Ada\", \"age\": 36}"}]},
    {"when": "go slowly", "delay_ms": 20, "repeat": 200, "pieces": [{"text": "slow words "}]},
    {"when": "be silent", "delay_ms": 600, "pieces": [{"text": "ah"}]},
    {"when": "take ages", "delay_ms": 5000, "pieces": [{"text": "ah"}]},
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins well"}]},
    {"when": "fail at once", "finish": "error", "pieces": []},
    {"when": "filter it", "finish": "content_filter", "pieces": [{"text": "Ahem"}]},
    {"when": "half a call", "finish": "length", "pieces": [
        {"raw": "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"}]},
    {"when": "be busy", "error": {"status": 429, "message": "The engine is busy."}},
    {"when": "be down", "error": {"status": 503, "message": "The engine is away."}},
]  # fmt: skip
CONFIG: dict[str, Any] = {
    "server": {"max_body_bytes": 200_000},
    "models": {
        "scripted": {
            "engine": "scripted",
            "aliases": ["claude-alias"],
            "scripted": {"rules": RULES},
        },
        "small": {
            "engine": "scripted",
            "max_model_len": 60,
            "max_running": 1,
            "max_waiting": 0,
            "scripted": {"rules": RULES},
        },
    },
}


@pytest.fixture(scope="session")
def messages_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("messages")) as gateway:
        yield gateway


@pytest.fixture
def root(messages_gateway: RunningGateway) -> str:
    """Where the vendor's clients begin: without `/v1`."""
    return messages_gateway.base_url.removesuffix("/v1")


@pytest.fixture
def claude(root: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def raw(root: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=root, timeout=60) as client:
        yield client


@pytest.fixture
def engine(messages_gateway: RunningGateway) -> ScriptedEngine:
    """The engine of the model `scripted`."""
    found = messages_gateway.services.models["scripted"].engine
    assert isinstance(found, ScriptedEngine)
    return found
