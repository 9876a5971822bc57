"""Any API may have the gateway run its tools: with results that it shows, or without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from gateway import hookimpl
from gateway.base.deltas import CallStarted, Delta, TextDelta
from gateway.base.errors import GatewayError
from gateway.plugins.protocols import (
    AsgiApp,
    CallWriter,
    FinishReason,
    GenerationRequest,
    Outcome,
    Reply,
    Route,
    RouteRequest,
    ToolResult,
    Turn,
)
from gateway.tools.functions import functions
from gateway.wire.content import InputText
from gateway.wire.items import Message
from gateway.wire.tools import decode_tools
from gateway_testing.pytest_plugin import StartGateway

RULES = [
    {"when": "roll", "pieces": [{"text": "I roll."}, {"call": {"name": "roll", "arguments": {}}}]},
    {"when": "rolled a 4", "pieces": [{"text": "Four."}]},
    {"when": "on and on", "pieces": [{"call": {"name": "again", "arguments": {}}}]},
]


def roll() -> str:
    """Roll a die."""
    return "rolled a 4"


def again() -> str:
    """Once more."""
    return "on and on"


class Writer:
    """Writes texts, calls and the end, each on a line."""

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        told = ""
        for delta in deltas:
            match delta:
                case TextDelta(text=text):
                    told += text
                case CallStarted(name=name):
                    told += f"\n{name}\n"
        return told.encode()

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        return self.feed(held) + b"\n"

    def finish(self, outcome: Outcome) -> bytes:
        return f"{outcome.reason} {outcome.paused} {outcome.usage.output_tokens > 0}".encode()

    def fail(self, error: GatewayError) -> bytes:
        return error.message.encode()

    def idle(self) -> bytes:
        return b""


class ShowingWriter(Writer):
    def called(self, result: ToolResult) -> bytes:
        return f"-> {result.text}\n".encode()


class Api:
    """Takes a text, and what the `GenerationRequest` shall say besides."""

    def __init__(self) -> None:
        self.routes = (Route(method="POST", path="/say", handle=self._say),)
        self.served: list[str] = []

    async def _say(self, request: RouteRequest) -> AsgiApp:
        said: dict[str, Any] = msgspec.json.decode(await request.body())
        message = Message(role="user", content=[InputText(text=said.pop("text"))])
        writer = ShowingWriter() if said.pop("shows", True) else Writer()
        tools = decode_tools(said.pop("tools", []))
        ask = GenerationRequest(model=None, turn=Turn(items=[message]), tools=tools, **said)
        answer = await request.gateway.prepare(ask)
        self.served = list(answer.available_tools)
        return answer.whole(writer, content_type="text/plain")

    def error(self, error: GatewayError, request_id: str) -> Reply:
        told = f"{error.param} {error.code} {error.message}"
        return Reply(body=told.encode(), status=error.status, content_type="text/plain")


class FrontPlugin:
    def __init__(self) -> None:
        self.api = Api()

    @asynccontextmanager
    async def _open(self, config: Any) -> AsyncIterator[Api]:
        yield self.api

    @hookimpl
    def gateway_register_apis(self, register: Any) -> None:
        register("say", self._open)

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("dice", functions("dice", roll, again))


@pytest.fixture
def plugin() -> FrontPlugin:
    return FrontPlugin()


@pytest.fixture
def say(gateway_server: StartGateway, plugin: FrontPlugin) -> Any:
    gateway = gateway_server(
        {
            "server": {"apis": ["say"]},
            "tools": {"dice": {}},
            "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
        },
        plugins=[plugin],
    )
    root = gateway.base_url.removesuffix("/v1")
    return lambda text, **ask: httpx.post(f"{root}/say", json={"text": text, **ask}, timeout=60)


def test_results_come_to_writers_that_show_them(say: Any, plugin: FrontPlugin) -> None:
    answer = say("roll", offers_tools=True)
    assert answer.text == "I roll.\nroll\n\n-> rolled a 4\nFour.\nstop False True"
    assert plugin.api.served == ["roll", "again"]
    assert isinstance(ShowingWriter(), CallWriter)
    assert not isinstance(Writer(), CallWriter)


def test_they_stay_out_of_sight_of_others(say: Any) -> None:
    answer = say("roll", offers_tools=True, shows=False)
    assert answer.text == "I roll.\nroll\n\nFour.\nstop False True"


def test_an_answer_is_paused_at_its_limit_and_fails_at_the_gateways(say: Any) -> None:
    answer = say("on and on", offers_tools=True, max_turns=2)
    assert answer.text == "\nagain\n\n-> on and on\n" * 2 + "stop True True"
    endless = say("on and on", offers_tools=True)
    assert endless.status_code == 500
    assert "max_turns_exceeded" in endless.text


def test_nothing_is_run_that_was_not_asked_for(say: Any, plugin: FrontPlugin) -> None:
    function = {"type": "function", "name": "roll", "parameters": {"type": "object"}}
    answer = say("roll", tools=[function])
    assert answer.text == "I roll.\nroll\n\nstop False True"
    assert plugin.api.served == []


def test_what_nobody_runs_is_refused_with_its_place(say: Any) -> None:
    answer = say("roll", tools=[{"type": "web_search"}])
    assert answer.status_code == 400
    assert answer.text.startswith("tools[0].type unsupported_tool ")
