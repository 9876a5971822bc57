"""A model that calls a tool which does not exist reads so and tries again, if the gateway runs all tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.protocols import ServerTool, SessionContext, ToolCall, ToolDefinition, ToolResult
from gateway.sdk import ToolServer, hookimpl
from gateway.testing.grammar import fold
from gateway.testing.server import RunningGateway, run_gateway

RULES = [
    {"when": "go", "pieces": [{"reasoning": "Hm."}, {"call": {"name": "nothing", "arguments": {"a": 1}}}]},
    {"when": "There is no tool named 'nothing'. The tools are: clock.", "pieces": [{"text": "So I say it."}]},
]  # fmt: skip
FUNCTION = {"type": "function", "name": "mine", "parameters": {"type": "object"}}


class Clock(ToolServer):
    label = "clock"

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name="clock"))]

    @asynccontextmanager
    async def session(self, context: SessionContext) -> Any:
        yield self

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult(text="noon")


class Plugin:
    @asynccontextmanager
    async def open(self, config: Any) -> Any:
        yield Clock()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("clock", self.open)


@pytest.fixture(scope="module", params=["harmony", "qwen3"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = {"engine": "scripted", "parser": request.param, "scripted": {"rules": RULES}}
    config = {"models": {"m": model}, "tools": {"clock": {}}}
    folder = tmp_path_factory.mktemp("unknown")
    with run_gateway(config, folder, plugins=[Plugin()]) as running:
        yield running


def test_the_model_reads_that_there_is_no_such_tool(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="go")
        assert made.output_text == "So I say it."
        [call] = [item for item in made.output if item.type == "mcp_call"]
        assert (call.name, call.status) == ("nothing", "failed")
        assert "There is no tool named 'nothing'" in str(call.error)
        events = list(client.responses.create(model="m", input="go", stream=True))
    assert events[-1].response.output_text == "So I say it."
    fold([event.to_dict() for event in events])


def test_a_client_with_tools_gets_the_call(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="go", tools=[FUNCTION])
    assert made.output[-1].type == "function_call"
    assert made.output[-1].name == "nothing"


def test_the_limit_on_calls_counts_them(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="go", max_tool_calls=1)
    assert made.status == "completed"
