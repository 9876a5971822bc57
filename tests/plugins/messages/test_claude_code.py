"""Requests as Claude Code makes them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway_scripted import ScriptedEngine
from tests.plugins.messages.messages_grammar import fold_events, parse_events

HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "authorization": "Bearer none",
    "user-agent": "claude-cli/2.1.36 (external, cli)",
    "x-app": "cli",
}
EPHEMERAL = {"type": "ephemeral"}


def schema(index: int) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": f"Path {index}"},
            "limit": {"type": "integer", "exclusiveMinimum": 0},
        },
        "required": ["file_path"],
        "additionalProperties": False,
    }


TOOLS = [
    {"name": f"mcp__server__tool_{index}", "description": "Does. " * 50, "input_schema": schema(index)}
    for index in range(60)
] + [{"name": "get_weather", "description": "Weather", "input_schema": schema(0), "cache_control": EPHEMERAL}]  # fmt: skip


def request(text: str, number: int = 0) -> dict[str, Any]:
    return {
        "model": "claude-alias",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.36.abc; cc_entrypoint=cli; cch={number:05x};"},
            {"type": "text", "text": "You are Claude Code.", "cache_control": EPHEMERAL},
            {"type": "text", "text": "Be concise.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>\nContext.\n</system-reminder>\n"},
                {"type": "text", "text": text, "cache_control": EPHEMERAL}]},
        ],
        "tools": TOOLS,
        "metadata": {"user_id": "user_0_account__session_1"},
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }  # fmt: skip


@pytest.fixture
def ask(raw: httpx.Client) -> Any:
    def ask(body: dict[str, Any]) -> dict[str, Any]:
        answer = raw.post("/v1/messages?beta=true", json=body, headers=HEADERS)
        assert answer.status_code == 200, answer.text
        return fold_events(parse_events(answer.content))

    return ask


def test_a_turn_with_thinking_a_call_and_its_result(ask: Any, engine: ScriptedEngine) -> None:
    body = request("weather in Paris")
    first = ask(body)
    assert [block["type"] for block in first["content"]] == ["thinking", "tool_use"]
    assert first["stop_reason"] == "tool_use"
    call = first["content"][1]
    result = {
        "tool_use_id": call["id"],
        "type": "tool_result",
        "content": [
            {"type": "text", "text": "18 degrees"},
            {"type": "tool_reference", "tool_name": "get_weather"},
        ],
        "is_error": False,
        "cache_control": EPHEMERAL,
    }
    body["messages"] += [
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "<system-reminder>x</system-reminder>"}]},
    ]  # fmt: skip
    second = ask(body)
    assert second["content"] == [{"type": "text", "text": "It is 18 degrees.", "citations": None}]
    assert second["stop_reason"] == "end_turn"
    turn = engine.requests[-1].turn
    assert turn is not None
    assert len(turn.tools) == 61


def test_what_changes_with_each_request_is_not_told_to_the_model(
    ask: Any, engine: ScriptedEngine
) -> None:
    ask(request("hello", 1))
    ask(request("hello", 2))
    one, other = list(engine.requests)[-2:]
    assert one.prompt == other.prompt
    assert one.turn is not None
    assert one.turn.instructions == "You are Claude Code.\n\nBe concise."


def test_counting_takes_the_same_body(raw: httpx.Client) -> None:
    body = request("hello")
    counted = raw.post("/v1/messages/count_tokens?beta=true", json=body, headers=HEADERS)
    streamed = raw.post("/v1/messages?beta=true", json=body, headers=HEADERS)
    used = fold_events(parse_events(streamed.content))["usage"]
    assert counted.json() == {"input_tokens": used["input_tokens"]}


def test_deferred_tools_are_told_from_where_they_are_found_on(
    ask: Any, engine: ScriptedEngine
) -> None:
    """Claude Code searches the tools itself; the placeholder among them is never found."""

    def told() -> list[str]:
        turn = engine.requests[-1].turn
        assert turn is not None
        return [tool.name for tool in turn.tools]

    body = request("hello")
    placeholder = {"name": "DeferredToolPlaceholder", "input_schema": schema(0), "defer_loading": True}  # fmt: skip
    found = {"name": "TaskStop", "input_schema": schema(0), "defer_loading": True}
    search = {"name": "ToolSearch", "input_schema": schema(0)}
    body["tools"] = [search, found, placeholder]
    ask(body)
    assert told() == ["ToolSearch"]
    body["messages"] += [
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {"query": "select:TaskStop"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "tool_reference", "tool_name": "TaskStop"}]}]},
    ]  # fmt: skip
    ask(body)
    assert told() == ["ToolSearch", "TaskStop"]


def test_thinking_is_shown_as_it_comes_where_updates_are_wanted(ask: Any) -> None:
    body = request("think first")
    body["thinking"] = {"type": "adaptive", "display": "updates"}
    assert [block["type"] for block in ask(body)["content"]] == ["thinking", "text"]
