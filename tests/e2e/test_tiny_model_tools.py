"""The tiny model calls tools that the gateway runs, for real, and answers from their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway import hookimpl
from gateway.plugins.hookspecs import OpenTool, Register
from gateway.tools.functions import functions
from gateway_testing.server import RunningGateway, run_gateway

MCP_SERVER = Path(__file__).parents[1] / "plugins" / "mcp" / "mcp_example_server.py"
SUMS: Any = [{"type": "mcp", "server_label": "sums"}]


def get_weather(city: str) -> dict[str, object]:
    """Get the weather of a city"""
    return {"temperature": len(city) * 3}


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("weather", functions("weather", get_weather))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """The embedded engine, a third party's function, and an MCP server as a process."""
    third_party = ModuleType("gateway_weather_example")
    third_party.gateway_register_tools = gateway_register_tools  # type: ignore[attr-defined]
    sums = {"command": [sys.executable, str(MCP_SERVER), "stdio"], "allowed_tools": ["add"]}
    config = {
        "models": {"tiny": {"engine": "llamacpp", "sampling": {"temperature": 0}}},
        "tools": {"weather": {}, "mcp": {"servers": {"sums": sums}}},
    }
    folder = tmp_path_factory.mktemp("tiny_tools")
    with run_gateway(config, folder, plugins=[third_party]) as running:
        yield running


def test_it_calls_a_third_partys_function_and_answers_from_the_result(
    gateway: RunningGateway,
) -> None:
    asked: Any = {"model": "tiny", "input": "What is the weather in Paris?"}
    with gateway.client() as client, client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        response = stream.get_final_response()
    call, message = response.output
    assert (call.type, call.name, json.loads(call.arguments)) == ("mcp_call", "get_weather", {"city": "Paris"})  # fmt: skip
    assert call.output == '{"temperature":15}'
    assert message.type == "message"
    assert "15" in response.output_text
    assert "response.mcp_call.completed" in kinds


def test_it_calls_an_mcp_tool_and_answers_from_the_result(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        response = client.responses.create(model="tiny", input="What is 12 + 30?", tools=SUMS)
    listing, call, _ = response.output
    assert [tool.name for tool in listing.tools] == ["add"]
    assert json.loads(call.arguments) == {"a": 12, "b": 30}
    assert call.output == "The sum is 42."
    assert "42" in response.output_text
