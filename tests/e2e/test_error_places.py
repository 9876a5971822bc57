"""The `param` of an error names a place in the body that the client sent, in the words of the API that it was sent to."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.chat import ChatRequest
from gateway.wire.completions import CompletionRequest
from gateway.wire.embeddings import EmbeddingsRequest
from gateway.wire.request import ResponseRequest
from gateway_messages.request import MessagesRequest
from gateway_testing.server import run_gateway
from tests.e2e.json_places import places

CONFIG: dict[str, Any] = {
    "server": {"apis": ["messages"], "schemas": {"max_depth": 6}},
    "models": {
        "scripted": {"engine": "scripted", "max_model_len": 3000},
        "vectors": {"engine": "scripted", "max_model_len": 60, "scripted": {"task": "embed"}},
    },
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
CHAT_FUNCTION = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": CITY, "strict": True},
}
GRAMMAR = {"syntax": "regex", "definition": "a+"}
CHAT_CUSTOM = {
    "type": "custom",
    "custom": {"name": "note", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
QUESTION = {"role": "user", "content": "weather in Paris"}

RESPONSES: list[dict[str, Any]] = [
    {"model": "scripted", "input": "hello", "max_output_tokens": 8},
    {
        "model": "scripted",
        "input": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "weather in Paris"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "18"}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "18", "annotations": [], "logprobs": []}]},
        ],
        "tools": [
            {"type": "function", "name": "get_weather", "strict": True, "parameters": CITY},
            {"type": "custom", "name": "note", "format": {"type": "grammar", **GRAMMAR}},
            {"type": "namespace", "name": "n", "description": "d",
             "tools": [{"type": "function", "name": "inner", "parameters": CITY}]},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto",
                        "tools": [{"type": "function", "name": "get_weather"}]},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": CITY}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "metadata": {"a": "b"},
        "top_logprobs": 2,
        "stop": ["x"],
        "context_management": [{"type": "compaction", "compact_threshold": 2000}],
    },
]  # fmt: skip
CHAT: list[dict[str, Any]] = [
    {"model": "scripted", "messages": [QUESTION], "max_tokens": 8, "guided_regex": "a+"},
    {
        "model": "scripted",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [
                {"type": "text", "text": "weather in Paris"},
                {"type": "image_url", "image_url": {"url": PIXEL}}]},
            {"role": "assistant", "content": "let me see", "reasoning_content": "hm", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
                {"id": "c2", "type": "custom", "custom": {"name": "note", "input": "a"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "18"}]},
            {"role": "tool", "tool_call_id": "c2", "content": "noted"},
        ],
        "tools": [CHAT_FUNCTION, CHAT_CUSTOM],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
            {"type": "function", "function": {"name": "get_weather"}}]}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": CITY}},
        "reasoning_effort": "low",
        "max_completion_tokens": 9,
        "logprobs": True,
        "top_logprobs": 2,
        "stop": ["x"],
        "stream_options": {"include_usage": True},
    },
    {
        "model": "scripted",
        "messages": [QUESTION],
        "tools": [CHAT_FUNCTION, CHAT_CUSTOM],
        "tool_choice": {"type": "custom", "custom": {"name": "note"}},
        "structured_outputs": {"regex": "a+"},
    },
    {
        "model": "scripted",
        "messages": [QUESTION, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
                     {"role": "function", "name": "f", "content": "18"}],
        "functions": [{"name": "f", "parameters": CITY}, {"name": "g", "parameters": CITY}],
        "function_call": {"name": "g"},
        "guided_json": CITY,
    },
]  # fmt: skip
COMPLETIONS: list[dict[str, Any]] = [
    {"model": "scripted", "prompt": "hello", "max_tokens": 8, "guided_choice": ["a", "b"]},
    {
        "model": "scripted",
        "prompt": ["hello", "you"],
        "n": 2,
        "stop": ["x", "y"],
        "logprobs": 2,
        "logit_bias": {"5": 1},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": CITY}},
        "stream_options": {"include_usage": True},
    },
    {"model": "scripted", "prompt": [[1, 2], [3]], "max_tokens": 8},
]
EMBEDDINGS: list[dict[str, Any]] = [
    {"model": "vectors", "input": "hello", "dimensions": 16},
    {"model": "vectors", "input": ["hello", "you"], "encoding_format": "base64"},
    {"model": "vectors", "input": [[65, 66], [67]]},
    {"model": "vectors", "input": [65, 66, 67]},
]
MESSAGES: list[dict[str, Any]] = [
    {"model": "scripted", "max_tokens": 8, "messages": [QUESTION], "stop_sequences": ["x", "y"]},
    {
        "model": "scripted",
        "max_tokens": 2000,
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "weather in Paris"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "18"}]}]},
        ],
        "tools": [
            {"name": "get_weather", "input_schema": CITY, "strict": True},
            {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["a.example"]},
        ],
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"format": {"type": "json_schema", "schema": CITY}, "effort": "low"},
    },
]  # fmt: skip

DEEP: dict[str, Any] = {"type": "object"}
for _ in range(8):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
JUNK: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "long " * 1000, [], {}, [[]], {"type": "x"}, {"type": None},
    {"": ""}, ["x", 1, None], {"type": "message"}, {"type": "function", "name": "f", "parameters": DEEP},
    {"type": "object", "properties": 1}, {"$ref": "#/nothing"}, DEEP, {"type": "colour"}, "(", "auto", "required",
    {"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "none", "content": "x"},
    [{"type": "input_text", "text": "x"}], [{"type": "image_url", "image_url": {"url": "http://[x"}}],
    [{"type": "input_image", "image_url": PIXEL}], [{"type": "input_file", "file_id": "file_1"}],
    {"type": "function_call_output", "call_id": "none", "output": "x"}, {"type": "web_search"}, CHAT_FUNCTION,
    {"type": "shell"}, {"type": "mcp", "server_label": "a", "server_url": "http://127.0.0.1/"},
    {"type": "item_reference", "id": "msg_none"}, {"type": "reasoning", "encrypted_content": "x", "summary": []},
    {"type": "code_execution_20250825", "name": "code_execution"}, "none", "scripted", "high",
]  # fmt: skip
NAMES = ["type", "id", "name", "content", "extra", "text", "role", "echo", "tools", "logprobs"]


@st.composite
def mutations(draw: st.DrawFn, valid: list[dict[str, Any]]) -> dict[str, Any]:
    """A valid body with one or two places removed, replaced, doubled or added to."""
    body = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 2))):
        options = places(body)
        if not options:
            break
        *way, last = draw(st.sampled_from(options))
        at: Any = body
        for step in way:
            at = at[step]
        what = draw(st.sampled_from(["remove", "replace", "add"]))
        if what == "remove":
            del at[last]
        elif what == "add" and isinstance(at, dict):
            at[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(st.sampled_from(JUNK)))
        elif what == "add":
            at.insert(last, copy.deepcopy(at[last]))
        else:
            at[last] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return body


def steps(param: str) -> list[str | int]:
    found = re.findall(r"\[(\d+)\]|([^.\[]+)", param)
    return [int(index) if index else name for index, name in found]


def misplaced(param: str, body: dict[str, Any], names: frozenset[str]) -> str | None:
    """Why `param` is no place in `body`; None if it is one, or if only its last step is missing there."""
    way = steps(param)
    if way[0] not in names:
        return f"{way[0]} is no parameter of this API"
    at: Any = body
    for number, step in enumerate(way):
        if isinstance(step, int):
            if not isinstance(at, list) or step >= len(at):
                return f"there is no [{step}] in {at!r}"
            at = at[step]
        elif not isinstance(at, dict):
            return f"there is no {step} in {at!r}"
        elif at.get(step) is None:
            return None if number == len(way) - 1 else f"{step} is missing, and not the last"
        else:
            at = at[step]
    return None


def names_of(request: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(request))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with (
        run_gateway(CONFIG, tmp_path_factory.mktemp("places")) as gateway,
        httpx.Client(base_url=gateway.base_url, timeout=30) as client,
    ):
        yield client


def check(client: httpx.Client, path: str, body: dict[str, Any], names: frozenset[str]) -> None:
    answer = client.post(path, json=body)
    if answer.status_code == 200:
        return
    error = answer.json()["error"]
    assert answer.status_code in (400, 404), answer.text
    if error["param"] is not None:
        problem = misplaced(error["param"], body, names)
        assert problem is None, f"{error}: {problem}"


@settings(max_examples=50)
@given(mutations(RESPONSES))
def test_in_responses(client: httpx.Client, body: dict[str, Any]) -> None:
    check(client, "/responses", body, names_of(ResponseRequest))


@settings(max_examples=50)
@given(mutations(CHAT))
def test_in_chat(client: httpx.Client, body: dict[str, Any]) -> None:
    names = names_of(ChatRequest) | {"functions", "function_call"}
    check(client, "/chat/completions", body, names)


@settings(max_examples=50)
@given(mutations(COMPLETIONS))
def test_in_completions(client: httpx.Client, body: dict[str, Any]) -> None:
    check(client, "/completions", body, names_of(CompletionRequest) | {"prompt"})


@settings(max_examples=50)
@given(mutations(EMBEDDINGS))
def test_in_embeddings(client: httpx.Client, body: dict[str, Any]) -> None:
    check(client, "/embeddings", body, names_of(EmbeddingsRequest) | {"input"})


_NAMED = re.compile(
    r"(?:(?:Missing required parameter: |Invalid |Invalid type for )'(?P<quoted>[^']+)'"
    r"|(?P<before>[a-z_]+(?:\.[a-z_]+|\[\d+\])*): )"
)
"""How a message of the Messages API begins, which has no `param` of its own."""


@settings(max_examples=50)
@given(mutations(MESSAGES))
def test_in_messages(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = client.post("/messages", json=body)
    if answer.status_code == 200:
        return
    assert answer.status_code in (400, 404), answer.text
    message = answer.json()["error"]["message"]
    if (named := _NAMED.match(message)) is not None:
        problem = misplaced(named["quoted"] or named["before"], body, names_of(MessagesRequest))
        assert problem is None, f"{message}: {problem}"
