"""MCP tools in chat completions: run by the gateway where the configuration offers them, and seen by nobody."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.base.errors import ConfigurationError
from gateway_testing.chat_grammar import fold_chunks, parse_chunks

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_example_server.py"), "stdio"]
EXAMPLE: dict[str, Any] = {"command": COMMAND}


def chat(gateway: Any, text: str, **body: Any) -> Any:
    with gateway.client() as client:
        return client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}], **body
        )


@pytest.mark.parametrize(
    ("offered", "server"),
    [("mcp.ex", EXAMPLE), ("mcp", {**EXAMPLE, "offer": True}), ("mcp.ex", {**EXAMPLE, "scope": "response"})],
)  # fmt: skip
@pytest.mark.slow
def test_a_tool_that_is_offered_is_run_and_not_seen(
    mcp_gateway: Callable[..., Any], offered: str, server: dict[str, Any]
) -> None:
    gateway = mcp_gateway(servers={"ex": server}, server={"chat_tools": [offered]})
    alone = chat(gateway, "The sum is 5")
    made = chat(gateway, "add and think")
    [choice] = made.choices
    assert choice.message.content.startswith("Both.\n\n")
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    assert made.usage.prompt_tokens > alone.usage.prompt_tokens, "both prompts are counted"
    body = {
        "messages": [{"role": "user", "content": "please add"}],
        "stream": True,
        "n": 2,
        "store": True,
    }
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=body, timeout=60)
    streamed = fold_chunks(parse_chunks(answer.content))
    assert [each["message"]["content"] for each in streamed["choices"]] == ["It is five."] * 2
    assert "The sum is" not in answer.text
    kept = httpx.get(f"{gateway.base_url}/chat/completions/{streamed['id']}").json()
    assert [each["message"]["content"] for each in kept["choices"]] == ["It is five."] * 2


def test_nothing_is_offered_that_is_not_configured(mcp_gateway: Callable[..., Any]) -> None:
    """Nor with `offer`, which is about the Responses API."""
    gateway = mcp_gateway(servers={"ex": {**EXAMPLE, "offer": True}})
    [choice] = chat(gateway, "please add").choices
    assert "add" in choice.message.content, "a call of a tool that was not offered is text"
    tools = {"tools": [{"type": "mcp", "server_label": "ex"}], "messages": [], "model": "m"}
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=tools)
    assert answer.status_code == 400


@pytest.mark.slow
def test_what_needs_approval_or_is_away_is_left_out(mcp_gateway: Callable[..., Any]) -> None:
    asking = {**EXAMPLE, "require_approval": "always"}
    away = {"command": [sys.executable, "-c", "raise SystemExit"], "connect_timeout": 1.0}
    gateway = mcp_gateway(
        servers={"asking": asking, "away": away, "ex": {**EXAMPLE, "allowed_tools": ["add"]}},
        server={"chat_tools": ["mcp.asking", "mcp.away", "mcp.ex"]},
    )
    assert chat(gateway, "please add").choices[0].message.content == "It is five."
    prompt = httpx.post(
        f"{gateway.base_url.removesuffix('/v1')}/tokenize",
        json={"messages": [{"role": "user", "content": "x"}], "return_token_strs": True},
    ).json()
    text = "".join(prompt["token_strs"])
    assert '"add"' in text
    assert '"count"' not in text


def test_a_clients_function_goes_before_a_tool_of_the_same_name(
    mcp_gateway: Callable[..., Any],
) -> None:
    gateway = mcp_gateway(servers={"ex": EXAMPLE}, server={"chat_tools": ["mcp.ex"]})
    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    [choice] = chat(gateway, "please add", tools=[add]).choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 2, "b": 3})


@pytest.mark.parametrize("name", ["mcp.nobody", "other", "other.ex"])
def test_a_name_that_is_not_there_stops_the_start(
    mcp_gateway: Callable[..., Any], name: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"server\.chat_tools names '{name}'"):
        mcp_gateway(servers={"ex": EXAMPLE}, server={"chat_tools": [name]})
