"""What requests say of the vendor's server tools, and what of it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from anthropic import Anthropic, BadRequestError

from gateway.wire.tools import WebSearchFilters
from gateway_scripted import ScriptedEngine

SEARCH: Any = {"type": "web_search_20250305", "name": "web_search"}
FETCH: Any = {"type": "web_fetch_20250910", "name": "web_fetch"}
PYTHON: Any = {"type": "code_execution_20250522", "name": "code_execution"}
CODE: Any = {"type": "code_execution_20260521", "name": "code_execution"}
WEATHER: Any = {"name": "get_weather", "input_schema": {"type": "object"}}
ADDING: Any = {"type": "mcp_toolset", "mcp_server_name": "ex"}


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def body(text: str, *tools: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 200, "messages": [user(text)], "tools": tools, **more}


@pytest.mark.parametrize(
    ("toolset", "told"),
    [
        ({}, True),
        ({"configs": {"add": {"enabled": False}}}, False),
        ({"default_config": {"enabled": False}}, False),
        ({"default_config": {"enabled": False}, "configs": {"add": {"enabled": True}}}, True),
    ],
)
def test_a_toolset_says_which_tools_are_meant(
    claude: Anthropic, engine: ScriptedEngine, toolset: Any, told: bool
) -> None:
    claude.beta.messages.create(**body("hello", {**ADDING, **toolset}))
    turn = engine.requests[-1].turn
    assert turn is not None
    assert ("add" in [tool.name for tool in turn.tools]) == told


def test_wishes_reach_the_tool(claude: Anthropic, served_web: Any) -> None:
    place = {"type": "approximate", "city": "Oslo", "country": "NO"}
    entry = {**SEARCH, "allowed_domains": ["tower.example"], "user_location": place}
    claude.messages.create(**body("hello", entry))
    name, tool = served_web.convert_request[-1]
    assert name == "entry"
    assert tool.filters.allowed_domains == ["tower.example"]
    assert (tool.user_location.city, tool.user_location.country) == ("Oslo", "NO")


@pytest.mark.parametrize("tools", [
    [{**SEARCH, "blocked_domains": ["tower.example"]}],
    [SEARCH, {**FETCH, "blocked_domains": ["tower.example"], "allowed_domains": []}],
    [{**SEARCH, "blocked_domains": ["tower.example"]}, {**FETCH, "blocked_domains": ["tower.example"]}],
])  # fmt: skip
def test_blocked_domains_reach_the_tool(claude: Anthropic, served_web: Any, tools: Any) -> None:
    claude.messages.create(**body("hello", *tools))
    _, tool = served_web.convert_request[-1]
    assert tool.filters == WebSearchFilters(blocked_domains=["tower.example"])


def test_what_search_allows_and_fetch_blocks_holds_for_both(
    claude: Anthropic, served_web: Any
) -> None:
    search = {**SEARCH, "allowed_domains": ["a.example"]}
    claude.messages.create(**body("hello", search, {**FETCH, "blocked_domains": ["b.a.example"]}))
    _, tool = served_web.convert_request[-1]
    assert tool.filters == WebSearchFilters(
        allowed_domains=["a.example"], blocked_domains=["b.a.example"]
    )


@pytest.mark.parametrize(
    ("choice", "name"),
    [({"type": "tool", "name": "code_execution"}, "python"), ({"type": "any"}, "python")],
)
def test_a_server_tool_can_be_chosen(
    claude: Anthropic, engine: ScriptedEngine, choice: Any, name: str
) -> None:
    claude.messages.create(**body("code gave", PYTHON, tool_choice=choice))
    turn = engine.requests[-1].turn
    assert turn is not None
    assert [tool.name for tool in turn.tools] == [name]


def test_tools_are_counted_as_the_prompt_has_them(claude: Anthropic) -> None:
    without = claude.messages.count_tokens(model="m", messages=[user("how tall")])
    with_it = claude.messages.count_tokens(model="m", messages=[user("how tall")], tools=[SEARCH])
    assert with_it.input_tokens > without.input_tokens


def test_tools_that_nobody_asks_for_are_not_offered(
    claude: Anthropic, engine: ScriptedEngine
) -> None:
    claude.messages.create(**body("hello", WEATHER))
    turn = engine.requests[-1].turn
    assert turn is not None
    assert [tool.name for tool in turn.tools] == ["get_weather"]


def test_the_configuration_can_offer_them(run_served: Callable[..., Any]) -> None:
    with run_served("dice", offer_tools=True) as running:
        root = running.base_url.removesuffix("/v1")
        with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
            message = client.beta.messages.create(**body("roll a die"))
            kinds = [block.type for block in message.content]
            assert kinds == ["mcp_tool_use", "mcp_tool_result", "text"]
            for tool, told in (
                (
                    SEARCH,
                    "tools[0].type: Tools of type 'web_search_20250305' are not available here.",
                ),
                (CODE, "tools[0].type: Tools of type 'code_execution_20260521' are not available"),
                (ADDING, "MCP servers are not available here."),
            ):
                with pytest.raises(BadRequestError, match="have the server configured") as refused:
                    client.beta.messages.create(**body("hello", tool))
                assert told in str(refused.value)


def test_the_configuration_can_leave_out_what_is_not_there(run_served: Callable[..., Any]) -> None:
    with run_served("dice", server={"unavailable_tools": "omit"}) as running:
        root = running.base_url.removesuffix("/v1")
        with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
            message = client.messages.create(**body("code gave", SEARCH, CODE, WEATHER))
        assert message.stop_reason == "end_turn"
        turn = running.services.models["m"].engine.requests[-1].turn
        assert [tool.name for tool in turn.tools] == ["get_weather"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "two domains": (
        body("x", {**SEARCH, "allowed_domains": ["a"]}, {**FETCH, "allowed_domains": ["b"]}),
        "tools[1].allowed_domains: Search and fetch share one list of domains.",
    ),
    "two blocked domains": (
        body("x", {**SEARCH, "blocked_domains": ["a"]}, {**FETCH, "blocked_domains": ["b"]}),
        "tools[1].blocked_domains: Search and fetch share one list of domains.",
    ),
    "allowed and blocked": (
        body("x", {**SEARCH, "allowed_domains": ["a"], "blocked_domains": ["b"]}),
        "tools[0].blocked_domains: A tool has either 'allowed_domains' or 'blocked_domains'.",
    ),
    "a wrong name": (body("x", {**SEARCH, "name": "web_fetch"}), "tools[0].name"),
    "no uses": (body("x", {**SEARCH, "max_uses": 0}), "tools[0].max_uses"),
    "an unknown server": (
        body("x", {**ADDING, "mcp_server_name": "nobody"}),
        "tools[0].mcp_server_name: No MCP server is configured as 'nobody'",
    ),
    "two toolsets": (body("x", ADDING, ADDING), "Two toolsets name one server."),
    "a server of the request": (
        body("x", mcp_servers=[{"type": "url", "name": "n", "url": "https://a.example"}]),
        "mcp_servers[0].url: This server does not connect to MCP servers that requests name",
    ),
    "an unknown choice": (
        body("x", SEARCH, tool_choice={"type": "tool", "name": "code_execution"}),
        "tool_choice.name",
    ),
    "an answer to nothing": (
        body("x", messages=[user("x"), {"role": "assistant", "content": [
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}]}, user("y")]),
        "messages[1].content[0].tool_use_id",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused_with_its_place(root: str, case: str) -> None:
    sent, told = BAD[case]
    answer = httpx.post(f"{root}/v1/messages", json=sent, timeout=60)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert told in error["message"]
