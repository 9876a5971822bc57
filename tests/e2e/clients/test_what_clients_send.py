"""Parameters and headers as real clients send them: nulls, empty lists, fields of other servers and of next year."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.clients.answers import said

RESPONSE_PARAMETERS = [
    "background", "client_metadata", "context_management", "conversation", "include", "instructions",
    "max_output_tokens", "max_tool_calls", "metadata", "moderation", "parallel_tool_calls",
    "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
    "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
    "truncation", "user",
]  # fmt: skip
CHAT_PARAMETERS = [
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
    "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
    "verbosity", "web_search_options", "include_reasoning", "chat_template_kwargs", "top_k",
]  # fmt: skip


def test_every_parameter_of_responses_may_be_null(http: httpx.Client) -> None:
    body = {"model": "scripted", "input": "hello", **dict.fromkeys(RESPONSE_PARAMETERS)}
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    assert said(answer.json()) == "hello"
    assert answer.json()["store"] is True
    assert http.get(f"/v1/responses/{answer.json()['id']}").status_code == 200


def test_every_parameter_of_chat_may_be_null(http: httpx.Client) -> None:
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "hello"}],
        **dict.fromkeys(CHAT_PARAMETERS),
    }
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    "settings",
    [
        {"reasoning": {"effort": None}},
        {"reasoning": {"effort": None, "summary": None, "generate_summary": None}},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"effort": "minimal", "summary": "detailed"}},
        {"reasoning": {}},
        {"text": {}},
        {"text": {"verbosity": "low"}},
        {"text": {"verbosity": None, "format": None}},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"parallel_tool_calls": True},
        {"parallel_tool_calls": False},
        {"include": []},
        {"include": ["reasoning.encrypted_content"], "store": False},
        {"metadata": {}},
        {"client_metadata": {"x-codex-turn-metadata": "{}"}},
        {"truncation": "disabled", "service_tier": "auto", "user": ""},
        {"stream_options": None},
        {"top_logprobs": 0},
        {"temperature": 1, "top_p": 1.0},
        {"prompt_cache_key": "k", "safety_identifier": "s", "prompt_cache_retention": "24h"},
        {"max_tool_calls": 3},
        {"a_field_of_next_year": {"deep": [1, None]}, "extra_headers": {}},
        {"instructions": ""},
    ],
    ids=json.dumps,
)
def test_settings_of_responses_are_taken(respond: Any, settings: dict[str, Any]) -> None:
    assert said(respond({"input": "hello", **settings})) == "hello"


@pytest.mark.parametrize(
    "settings",
    [
        {"tools": []},
        {"tools": [], "tool_choice": "auto"},
        {"tools": [], "tool_choice": "none"},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"functions": []},
        {"parallel_tool_calls": True},
        {"parallel_tool_calls": False},
        {"stop": []},
        {"logit_bias": {}},
        {"logprobs": False},
        {"logprobs": False, "top_logprobs": 0},
        {"top_logprobs": 0},
        {"modalities": ["text"]},
        {"response_format": {"type": "text"}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "minimal", "verbosity": "low"},
        {"metadata": {}, "store": False, "user": ""},
        {"n": 1, "best_of_next_year": 1},
        {"max_tokens": 50, "max_completion_tokens": None},
        {"temperature": 0, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0},
        {"prediction": {"type": "content", "content": "hello"}},
        {"service_tier": "auto", "safety_identifier": "s"},
        {"reasoning": {"effort": "low"}},
        {"thinking": {"type": "disabled"}},
        {"cache_control": {"type": "ephemeral"}},
    ],
    ids=json.dumps,
)
def test_settings_of_chat_are_taken(chat: Any, settings: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], **settings}
    assert chat(body)["content"] == "hello"


HEADERS = {
    "OpenAI-Beta": "responses=experimental",
    "OpenAI-Organization": "org-1",
    "OpenAI-Project": "proj_1",
    "x-stainless-lang": "python",
    "x-stainless-retry-count": "1",
    "x-stainless-read-timeout": "600",
    "Idempotency-Key": "stainless-python-retry-1",
    "X-Client-Request-Id": "mine",
    "originator": "codex_exec",
    "session_id": "1",
    "version": "0.1",
    "api-key": "none",
    "HTTP-Referer": "https://example.com",
    "Accept": "text/event-stream",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


def test_headers_of_clients_are_taken(respond: Any, chat: Any) -> None:
    assert said(respond({"input": "hello"}, **HEADERS)) == "hello"
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert chat(body, **HEADERS)["content"] == "hello"


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_the_content_type_may_be_written_in_several_ways(http: httpx.Client, kind: str) -> None:
    body = json.dumps({"model": "scripted", "input": "hello"})
    answer = http.post("/v1/responses", content=body, headers={"Content-Type": kind})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/v1/responses/", "/v1/v1/responses", "/responses", "/v1"])
def test_a_base_url_that_is_nearly_right_is_told_in_the_envelope(
    http: httpx.Client, path: str
) -> None:
    answer = http.post(path, json={"model": "scripted", "input": "hello"})
    if answer.status_code == 200:
        assert said(answer.json()) == "hello"
    else:
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert path in answer.json()["error"]["message"]
