"""Mutated requests: whatever is sent, the answer is a response or an envelope, and the server lives on."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import httpx
import pytest

from tests.e2e.json_places import places

VALID: list[dict[str, Any]] = [
    {"model": "scripted", "input": "hello", "max_output_tokens": 8},
    {
        "model": "scripted",
        "input": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "input_text", "text": "weather in Paris"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "18"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "18", "annotations": [], "logprobs": []}]},
        ],
        "tools": [
            {"type": "function", "name": "get_weather", "strict": True,
             "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                            "required": ["city"], "additionalProperties": False}},
            {"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "metadata": {"a": "b"},
        "top_logprobs": 2,
        "temperature": 0.5,
        "stream_options": {"include_obfuscation": False},
    },
]  # fmt: skip
JUNK: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 10**30, "", "x", "\x00", "😀" * 50, [], {}, [[]], {"type": "x"},
    {"type": None}, {"type": []}, {"": ""}, "a" * 5000, ["x", 1, None], {"type": "object", "properties": 1},
    {"type": "message"}, {"type": "function", "name": "f", "parameters": {"$ref": "#/nothing"}},
    {"role": "user", "content": "x"}, "auto", "none", "required", [{"type": "input_text", "text": "x"}],
]  # fmt: skip


def mutated(chance: random.Random) -> dict[str, Any]:
    body = copy.deepcopy(chance.choice(VALID))
    for _ in range(chance.randint(1, 3)):
        options = places(body)
        if not options:
            break
        *way, last = chance.choice(options)
        at: Any = body
        for step in way:
            at = at[step]
        match chance.randint(0, 3):
            case 0:
                del at[last]
            case 1 if isinstance(at, dict):
                at[chance.choice(["type", "id", "name", "content", "extra"])] = chance.choice(JUNK)
            case _:
                at[last] = copy.deepcopy(chance.choice(JUNK))
    body["stream"] = chance.random() < 0.3
    return body


@pytest.mark.parametrize("seed", range(8))
def test_mutated_requests_are_answered_or_refused(http: httpx.Client, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        body = mutated(chance)
        answer = http.post("/v1/responses", content=json.dumps(body).encode(),
                           headers={"content-type": "application/json"})  # fmt: skip
        assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text, body)
        if answer.status_code != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        elif body["stream"] is True:
            assert answer.text.endswith("data: [DONE]\n\n")
            assert '"status":"failed"' not in answer.text, body


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_are_refused(http: httpx.Client, seed: int) -> None:
    chance = random.Random(seed)
    valid = json.dumps(VALID[1]).encode()
    for _ in range(50):
        body = bytearray(valid)
        for _ in range(chance.randint(1, 5)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        answer = http.post("/v1/responses", content=bytes(body),
                           headers={"content-type": "application/json"})  # fmt: skip
        assert answer.status_code in (200, 400, 404), answer.text
    assert http.get("/health").status_code == 200
