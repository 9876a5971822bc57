"""Items as libraries keep them and send them back: with nulls, fake ids, fields of their own, twice, or in part."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.e2e.clients.answers import WEATHER, said


def turn(http: httpx.Client, prompt: str) -> list[dict[str, Any]]:
    """What the model answered, as it stands in the answer."""
    body = {"model": "scripted", "input": prompt, "tools": [WEATHER]}
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200
    output: list[dict[str, Any]] = answer.json()["output"]
    return output


def _without(*names: str) -> Any:
    return lambda item: {key: value for key, value in item.items() if key not in names}


def _nulled(*names: str) -> Any:
    return lambda item: {**item, **dict.fromkeys(names)}


def _dumped(item: dict[str, Any]) -> dict[str, Any]:
    """As a library dumps its model: with a null for whatever is not there."""
    from openai.types.responses import ResponseOutputItem
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
    dumped: dict[str, Any] = adapter.dump_python(adapter.validate_python(item), mode="json")
    return dumped


ECHOES = {
    "as it came": lambda item: item,
    "dumped by the SDK": _dumped,
    "without ids": _without("id"),
    "without ids and statuses": _without("id", "status"),
    "with null ids": _nulled("id"),
    "with null ids and statuses": _nulled("id", "status"),
    "with more fields": lambda item: {
        **item,
        "phase": None,
        "created_by": None,
        "parsed_arguments": {},
        "namespace": None,
        "caller": None,
        "provider_data": {"model": "x"},
        "response_id": "resp_1",
    },
    "with ids of the client": lambda item: {**item, "id": "__fake_id__"},
    "with in-progress statuses": lambda item: {**item, "status": "in_progress"},
}


@pytest.mark.parametrize("how", ECHOES)
@pytest.mark.parametrize("twice", [False, True])
def test_items_come_back(http: httpx.Client, respond: Any, how: str, twice: bool) -> None:
    output = [ECHOES[how](item) for item in turn(http, "weather in Paris")]
    call = output[-1]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "18 degrees"}
    reasoning = [output[0]] if twice else []
    items = [{"role": "user", "content": "weather in Paris"}, *reasoning, *output, result]
    answer = respond({"input": items, "tools": [WEATHER], "store": False})
    assert said(answer) == "It is 18 degrees in Paris."


@pytest.mark.parametrize("how", ECHOES)
def test_messages_come_back(http: httpx.Client, respond: Any, how: str) -> None:
    output = [ECHOES[how](item) for item in turn(http, "think first")]
    items = [{"role": "user", "content": "think first"}, *output, {"role": "user", "content": "18 degrees"}]  # fmt: skip
    assert said(respond({"input": items})) == "It is 18 degrees in Paris."


@pytest.mark.parametrize(
    "reasoning",
    [
        {"summary": []},
        {"summary": [], "content": None, "encrypted_content": None},
        {"summary": [], "content": []},
        {"summary": [], "id": "rs_1"},
        {"id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"id": None, "summary": None, "content": None, "status": None},
        {
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm."}],
            "status": "completed",
        },
        {"summary": [], "encrypted_content": ""},
        {},
    ],
    ids=json.dumps,
)
def test_reasoning_comes_back_empty_and_twice(respond: Any, reasoning: Any) -> None:
    item = {"type": "reasoning", **reasoning}
    items = [
        {"role": "user", "content": "x"},
        item,
        item,
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "18 degrees"},
    ]
    assert said(respond({"input": items})) == "It is 18 degrees in Paris."


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "y", "phase": "commentary"},
        {"role": "assistant", "content": "y", "phase": None},
        {"type": "message", "role": "assistant", "content": [], "id": None},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": [{"type": "output_text", "text": "y"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "y", "annotations": None, "logprobs": None, "parsed": None}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": [{"type": "input_text", "text": "y"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "y"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": ""}], "status": None},
        {"role": "user", "content": [{"type": "text", "text": "y"}], "name": "ada"},
        {"role": "user", "content": [{"type": "input_text", "text": "y", "cache_control": None}]},
        {"role": "user", "content": []},
        {"role": "system", "content": "y"},
        {"role": "developer", "content": [{"type": "input_text", "text": "y"}]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_messages_of_many_shapes_are_taken(respond: Any, message: Any) -> None:
    items = [{"role": "user", "content": "x"}, message, {"role": "user", "content": "18 degrees"}]
    assert said(respond({"input": items})) == "It is 18 degrees in Paris."


@pytest.mark.parametrize(
    "output",
    [
        "18 degrees",
        [{"type": "input_text", "text": "18 degrees"}],
        [{"type": "input_text", "text": "Sunny,"}, {"type": "input_text", "text": "18 degrees"}],
    ],
    ids=json.dumps,
)
@pytest.mark.parametrize(
    "more", [{}, {"id": None, "status": None}, {"id": "fco_1", "status": "completed"}, {"name": "get_weather"}],
    ids=json.dumps,
)  # fmt: skip
def test_outputs_of_functions_are_taken(respond: Any, output: Any, more: Any) -> None:
    items = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": output, **more},
    ]
    answer = respond({"input": items, "tools": [WEATHER]})
    assert said(answer) == "It is 18 degrees in Paris."


@pytest.mark.parametrize("output", ["", []], ids=json.dumps)
def test_a_function_may_give_nothing(respond: Any, output: Any) -> None:
    items = [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": ""},
        {"type": "function_call_output", "call_id": "c1", "output": output},
    ]
    respond({"input": items, "tools": [WEATHER]})
