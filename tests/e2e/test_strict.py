"""A strict server: what passes here passes at OpenAI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
from openai.types.responses import input_token_count_params

from gateway_testing.server import run_gateway

USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
RESPONSE: dict[str, Any] = {"model": "m", "input": "x"}
CHAT: dict[str, Any] = {"model": "m", "messages": [USER]}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, httpx.Client]]:
    models = {"m": {"engine": "scripted"}}
    strict: dict[str, Any] = {"models": models, "server": {"compatibility": "strict"}}
    with (
        run_gateway(strict, tmp_path_factory.mktemp("strict")) as one,
        run_gateway({"models": models}, tmp_path_factory.mktemp("lenient")) as other,
        httpx.Client(base_url=one.base_url, timeout=60) as a,
        httpx.Client(base_url=other.base_url, timeout=60) as b,
    ):
        yield {"strict": a, "lenient": b}


# name: (path, body, message, param); all are accepted by a lenient server
CASES: dict[str, tuple[str, dict[str, Any], str, str | None]] = {
    "unknown": ("/responses", {**RESPONSE, "top_k": 1}, "Unknown parameter: 'top_k'.", "top_k"),
    "unknown within": ("/responses", {**RESPONSE, "reasoning": {"max_tokens": 5}}, "Unknown parameter: 'reasoning.max_tokens'.", "reasoning.max_tokens"),
    "counted": ("/responses/input_tokens", {"input": "x"}, "Missing required parameter: 'model'.", "model"),
    "compacted": ("/responses/compact", {"input": "x"}, "Missing required parameter: 'model'.", "model"),
    "a call alone": ("/responses", {"model": "m", "input": [USER, CALL, USER]}, "No tool output found for function call c1.", "input"),
    "chat": ("/chat/completions", {**CHAT, "min_p": 0.1}, "Unrecognized request argument supplied: min_p", None),
    "a structural tag": ("/chat/completions", {**CHAT, "response_format": {"type": "structural_tag", "format": {"type": "any_text"}}}, "Invalid value: 'structural_tag'. Supported values are: 'json_object', 'json_schema', and 'text'.", "response_format.type"),
    "chat within": ("/chat/completions", {**CHAT, "messages": [{**USER, "cache_control": {}}]}, "Unknown parameter: 'messages[0].cache_control'.", "messages[0].cache_control"),
    "completions": ("/completions", {"model": "m", "prompt": "x", "stop": list("abcde")}, "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length 5 instead.", "stop"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_strict_server_rejects_what_the_lenient_one_takes(
    clients: dict[str, httpx.Client], name: str
) -> None:
    path, body, message, param = CASES[name]
    answer = clients["strict"].post(path, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["message"], error["param"]) == (message, param)
    assert clients["lenient"].post(path, json=body).status_code == 200


def test_every_parameter_of_input_tokens_passes(clients: dict[str, httpx.Client]) -> None:
    hints = get_type_hints(input_token_count_params.InputTokenCountParams)
    sent = dict.fromkeys(hints) | {"model": "m", "input": "x", "personality": "friendly"}
    for client in clients.values():
        answer = client.post("/responses/input_tokens", json=sent)
        assert answer.status_code == 200, answer.text


def test_an_output_without_its_call_has_openais_words(clients: dict[str, httpx.Client]) -> None:
    answer = clients["strict"].post("/responses", json={"model": "m", "input": [USER, OUTPUT]})
    error = answer.json()["error"]
    assert error["message"] == "No tool call found for function call output with call_id c1."
    assert (error["param"], error["code"]) == ("input", None)


def test_what_belongs_together_passes(clients: dict[str, httpx.Client]) -> None:
    strict = clients["strict"]
    body = {"model": "m", "input": [USER, CALL, OUTPUT]}
    assert strict.post("/responses", json=body).status_code == 200
    tool = {"type": "function", "name": "f"}
    made = strict.post("/responses", json={**RESPONSE, "tools": [tool], "tool_choice": "required"}).json()  # fmt: skip
    output = {**OUTPUT, "call_id": made["output"][0]["call_id"]}
    body = {"model": "m", "input": [output], "previous_response_id": made["id"]}
    assert strict.post("/responses", json=body).status_code == 200
    body["input"] = [USER]
    refused = strict.post("/responses", json=body).json()["error"]
    assert refused["message"].startswith("No tool output found for function call ")
    assert strict.post("/chat/completions", json=CHAT).status_code == 200


WRONG = {"type": "object", "properties": {"a": {"type": "objct"}}}


@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_a_schema_that_is_none_is_refused_in_both_modes(
    clients: dict[str, httpx.Client], mode: str
) -> None:
    http = clients[mode]

    def refused(path: str, body: Any) -> tuple[str, str]:
        answer = http.post(path, json=body)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert "properties.a.type" in error["message"]
        return error["param"], error["code"]

    function = {"name": "f", "parameters": WRONG}
    assert refused("/responses", {**RESPONSE, "tools": [{"type": "function", **function}]}) == (
        "tools[0].parameters.properties.a.type",
        "invalid_function_parameters",
    )
    assert refused("/responses", {**RESPONSE, "text": {"format": {"type": "json_schema", "name": "n", "schema": WRONG}}}) == (
        "text.format.schema.properties.a.type",
        "invalid_json_schema",
    )  # fmt: skip
    assert refused("/chat/completions", {**CHAT, "tools": [{"type": "function", "function": function}]}) == (
        "tools[0].function.parameters.properties.a.type",
        "invalid_function_parameters",
    )  # fmt: skip
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": WRONG}}
    assert refused("/chat/completions", {**CHAT, "response_format": wanted}) == (
        "response_format.json_schema.schema",
        "invalid_json_schema",
    )


@pytest.mark.parametrize("way", ["parse", "stream"])
def test_what_openais_sdk_has_parsed_can_be_sent_back(tmp_path: Path, way: str) -> None:
    pieces = [{"text": "Let me look."}, {"call": {"name": "clock", "arguments": {}}}]
    rules = [{"when": "go", "pieces": pieces}, {"when": "noon", "pieces": [{"text": "Noon."}]}]
    config = {
        "models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}},
        "server": {"compatibility": "strict"},
    }
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    tool: Any = {
        "type": "function",
        "function": {"name": "clock", "strict": True, "parameters": schema},
    }
    messages: list[Any] = [{"role": "user", "content": "go"}]
    with run_gateway(config, tmp_path) as gateway, gateway.client() as client:
        chat = client.chat.completions
        asked: Any = {"model": "m", "messages": messages, "tools": [tool]}
        if way == "parse":
            said = chat.parse(**asked).choices[0].message
        else:
            with chat.stream(**asked) as events:
                said = events.get_final_completion().choices[0].message
        assert said.tool_calls
        messages += [
            said,
            {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "noon"},
        ]
        assert chat.create(**asked).choices[0].message.content == "Noon."
