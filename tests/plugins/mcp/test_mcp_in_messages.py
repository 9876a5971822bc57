"""MCP servers that a request of the Anthropic Messages API names, by the vendor's own client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic, BadRequestError

HERE = {"enabled": True, "allow_hosts": ["127.0.0.1", "localhost"], "allow_private": True}


def ask(gateway: Any, text: str, url: str, tools: Any = (), **server: Any) -> Any:
    root = gateway.base_url.removesuffix("/v1")
    with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
        return client.beta.messages.create(
            model="m",
            max_tokens=100,
            messages=[{"role": "user", "content": text}],
            tools=tools,
            mcp_servers=[{"type": "url", "name": "there", "url": url, **server}],
            betas=["mcp-client-2025-11-20"],
        )


@pytest.mark.parametrize(
    ("tools", "server"),
    [
        ((), {}),
        ((), {"authorization_token": "secret"}),
        ((), {"tool_configuration": {"allowed_tools": ["add"]}}),
        ([{"type": "mcp_toolset", "mcp_server_name": "there"}], {}),
    ],
)
def test_its_tools_are_run_and_shown(
    mcp_gateway: Callable[..., Any], streamable: Any, tools: Any, server: dict[str, Any]
) -> None:
    message = ask(mcp_gateway(remote=HERE), "please add", streamable.url, tools, **server)
    call, result, text = message.content
    assert (call.type, call.server_name, call.name) == ("mcp_tool_use", "there", "add")
    assert (result.type, result.tool_use_id) == ("mcp_tool_result", call.id)
    assert not result.is_error
    assert text.text == "It is five."
    assert message.stop_reason == "end_turn"


def test_a_failing_tool_is_an_error_that_ends_nothing(
    mcp_gateway: Callable[..., Any], streamable: Any
) -> None:
    message = ask(mcp_gateway(remote=HERE), "fail please", streamable.url)
    assert message.content[1].is_error
    assert message.content[-1].text == "It said no."


def test_a_tool_that_is_not_meant_is_not_called(
    mcp_gateway: Callable[..., Any], streamable: Any
) -> None:
    given = {"tool_configuration": {"allowed_tools": ["count"]}}
    message = ask(mcp_gateway(remote=HERE), "please add", streamable.url, **given)
    calls = [block for block in message.content if block.type == "mcp_tool_use"]
    results = [block for block in message.content if block.type == "mcp_tool_result"]
    assert calls
    assert {call.server_name for call in calls} == {"unknown"}, "the model made it up"
    assert all(result.is_error for result in results)


def test_a_server_that_is_away_is_a_bad_request(mcp_gateway: Callable[..., Any]) -> None:
    with pytest.raises(
        BadRequestError, match=r"mcp_servers\[0\]: The server 'there' cannot be used"
    ):
        ask(mcp_gateway(remote=HERE), "please add", "http://127.0.0.1:9/mcp")
