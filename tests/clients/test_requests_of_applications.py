"""Requests of applications that are not run here, as their public sources make them: chat windows, editors, homes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway

ASKED = {"role": "user", "content": "and once more"}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
OPEN_WEBUI = {
    "HTTP-Referer": "https://openwebui.com/",
    "X-Title": "Open WebUI",
    "X-OpenWebUI-User-Name": "Ada%20L",
    "X-OpenWebUI-User-Role": "admin",
}

CHATS: dict[str, dict[str, Any]] = {
    "Open WebUI": {
        **USAGE,
        "messages": [{"role": "system", "content": "Be nice."}, ASKED],
        "temperature": 0.7,
        "min_p": 0.0,
        "repeat_penalty": 1.1,
        "num_ctx": 2048,
        "keep_alive": "5m",
        "stop": [],
        "logit_bias": {},
        "think": True,
        "function_calling": "native",
    },
    "Open WebUI, a title": {
        "stream": False,
        "max_completion_tokens": 1000,
        "messages": [{"role": "user", "content": "### Task:\nGenerate a title.\nand once more"}],
    },
    "Open WebUI, after a call": {
        **USAGE,
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "weather in Paris"},
            {
                "role": "assistant",
                "content": '<details type="reasoning" done="true">\n> Hm\n</details>',
                "reasoning_content": "Hm",
                "tool_calls": [CALL],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees in Paris"},
            {**ASKED, "cache_control": {"type": "ephemeral"}},
        ],
    },
    "Cline": {
        **USAGE,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": "You are Cline."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<task>\nand once more\n</task>"},
                    {"type": "text", "text": "<environment_details>\n</environment_details>"},
                ],
            },
        ],
    },
    "Roo Code": {
        **USAGE,
        "temperature": 0.6,
        "max_tokens": None,
        "tools": [WEATHER],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "messages": [
            {"role": "user", "content": "You are Roo."},
            {"role": "assistant", "content": "Yes."},
            {"role": "assistant", "content": "I am."},
            ASKED,
        ],
    },
    "Continue": {**USAGE, "messages": [ASKED], "max_tokens": 4096, "stop": None, "prediction": None},
    "aider": {
        **USAGE,
        "temperature": 0,
        "messages": [
            {"role": "system", "content": "Act as an expert."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "and once more", "cache_control": {"type": "ephemeral"}}
                ],
            },
        ],
    },
    "Zed": {
        **USAGE,
        "messages": [ASKED],
        "max_completion_tokens": 4096,
        "stop": [],
        "tools": [],
        "prompt_cache_key": "thread",
    },
    "Roo Code, with tools": {
        **USAGE,
        "tools": [{**WEATHER, "function": {**WEATHER["function"], "strict": True}}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "max_completion_tokens": 8192,
        "thinking": {"type": "enabled"},
        "verbosity": "medium",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "weather in Paris"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [CALL],
                "reasoning_details": [{"type": "reasoning.text", "text": "Hm", "index": 0}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees in Paris"},
            ASKED,
        ],
    },
    "opencode": {
        **USAGE,
        "tools": [WEATHER],
        "tool_choice": "auto",
        "max_tokens": 32000,
        "reasoning_effort": "high",
        "prompt_cache_key": "ses_1",
        "messages": [
            {"role": "system", "content": "You are opencode."},
            {"role": "user", "content": "weather in Paris"},
            {"role": "assistant", "content": "", "reasoning_content": "Hm", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees in Paris"},
            ASKED,
        ],
    },
    "Qwen Code": {
        **USAGE,
        "tools": [{**WEATHER, "cache_control": {"type": "ephemeral"}}],
        "temperature": 0,
        "max_tokens": 8000,
        "metadata": {"sessionId": "s", "promptId": "p"},
        "vl_high_resolution_images": True,
        "enable_thinking": True,
        "messages": [
            {
                "role": "system",
                "content": [
                    {"type": "text", "text": "You are Qwen.", "cache_control": {"type": "ephemeral"}}
                ],
            },
            {"role": "user", "content": "weather in Paris"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "18 degrees in Paris"}]},
            ASKED,
        ],
    },
    "goose": {
        **USAGE,
        "tools": [WEATHER],
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "You are goose."},
            {"role": "user", "content": "weather in Paris"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees in Paris"},
            ASKED,
        ],
    },
    "Hermes": {
        **USAGE,
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "weather in Paris"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": " ",
                "finish_reason": "tool_calls",
                "tool_calls": [{**CALL, "call_id": "call_1", "response_item_id": "fc_1"}],
            },
            {"role": "tool", "tool_call_id": "call_1", "tool_name": "get_weather", "content": "18 degrees in Paris"},
            ASKED,
        ],
    },
    "Vibe": {
        **USAGE,
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                    {"type": "text", "text": "Hello."},
                ],
            },
            ASKED,
        ],
    },
    "Dify": {**USAGE, "messages": [ASKED], "user": "abc", "enable_thinking": False, "stop": ["\nObservation"]},
    "Copilot, with a key of one's own": {
        **USAGE,
        "messages": [{"role": "system", "content": "You are an expert."}, ASKED],
        "temperature": 0.1,
        "n": 1,
        "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "f", "description": "Does."}}],
        "intent": False,
        "snippy": {"enabled": False},
    },
}  # fmt: skip


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    headers = {"Authorization": "Bearer none"}
    with httpx.Client(base_url=gateway.base_url, headers=headers, timeout=60) as client:
        yield client


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if "data: " in line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", CHATS)
def test_chat(http: httpx.Client, name: str) -> None:
    body = {"model": "demo", **CHATS[name]}
    answer = http.post("/chat/completions", json=body, headers=OPEN_WEBUI)
    assert answer.status_code == 200, answer.text
    if not body["stream"]:
        assert answer.json()["choices"][0]["message"]["content"] == "As I said."
        return
    *chunks, last = events(answer)
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "As I said."
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] > last["usage"]["completion_tokens"] > 0


def test_what_a_model_picker_reads(http: httpx.Client) -> None:
    listed = http.get("/models", headers=OPEN_WEBUI).json()
    assert listed["object"] == "list"
    assert {"demo", "harmony"} <= {each["id"] for each in listed["data"]}


def test_home_assistant(http: httpx.Client) -> None:
    body = {
        "model": "demo",
        "stream": True,
        "store": False,
        "user": "01",
        "temperature": 1.0,
        "top_p": 1.0,
        "max_output_tokens": 3000,
        "service_tier": "auto",
        "prompt_cache_retention": "24h",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "medium"},
        "tools": [
            {
                "type": "function",
                "name": "HassTurnOn",
                "description": None,
                "strict": False,
                "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
            }
        ],
        "input": [
            {"type": "message", "role": "developer", "content": "You are a voice assistant."},
            {"type": "message", "role": "user", "content": "and once more"},
        ],
    }
    answer = http.post("/responses", json=body)
    assert answer.status_code == 200, answer.text
    final = events(answer)[-1]
    assert final["type"] == "response.completed"
    assert final["response"]["output"][-1]["content"][0]["text"] == "As I said."


def test_vectors_of_a_knowledge_base(http: httpx.Client) -> None:
    body = {"model": "demo", "input": ["one", "two"]}
    answer = http.post("/embeddings", json=body, headers=OPEN_WEBUI)
    assert [each["index"] for each in answer.json()["data"]] == [0, 1]
