"""Reasoning that a request wants told as a summary: streamed, stored, replayed, and sent back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from gateway.answers.hints import hints_of
from gateway.wire.request import decode_response_request
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

RULES = [
    {"when": "it said 18", "pieces": [{"text": "It is 18 degrees."}]},
    {"when": "weather", "pieces": [{"reasoning": "There is a tool."}, {"call": {"name": "look", "arguments": {}}}]},
    {"when": "think", "pieces": [{"reasoning": "Hm.\nWell."}, {"text": "Done."}]},
]  # fmt: skip
THOUGHT = "There is a tool."
ASKED = {"reasoning": {"summary": "auto"}}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """`m` tells reasoning as its summary, `silent` tells none."""
    model = {"engine": "scripted", "scripted": {"rules": RULES}}
    config: dict[str, Any] = {
        "models": {"m": model, "silent": {**model, "reasoning_summary": "none"}}
    }
    with run_gateway(config, tmp_path_factory.mktemp("summary")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


@pytest.fixture
def respond(http: httpx.Client) -> Callable[..., Any]:
    """`respond(**body)`: the finished response."""

    def ask(**body: Any) -> Any:
        answer = http.post("/responses", json={"model": "m", "input": "think", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


@pytest.fixture
def prompt(gateway: RunningGateway) -> Callable[[], str]:
    """`prompt()`: what the model `m` was told last."""
    engine: Any = gateway.services.models["m"].engine
    return lambda: str(engine.tokenizer.decode(engine.requests[-1].prompt.token_ids))


def summaries(response: Any) -> list[list[str]]:
    return [
        [part["text"] for part in item["summary"]]
        for item in response["output"]
        if item["type"] == "reasoning"
    ]


@pytest.mark.parametrize("setting", ["summary", "generate_summary"])
@pytest.mark.parametrize("value", ["auto", "concise", "detailed"])
def test_a_summary_is_the_whole_reasoning(respond: Any, setting: str, value: str) -> None:
    response = respond(reasoning={setting: value})
    (item,) = (each for each in response["output"] if each["type"] == "reasoning")
    assert item["summary"] == [{"type": "summary_text", "text": "Hm.\nWell."}]
    assert item["content"] == [{"type": "reasoning_text", "text": "Hm.\nWell."}]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reasoning": {"effort": "low"}},
        {"reasoning": {"summary": None, "generate_summary": None}},
        {"model": "silent", **ASKED},
    ],
)
def test_without_one_asked_for_there_is_none(http: httpx.Client, body: Any) -> None:
    body = {"model": "m", "input": "think", "stream": True, **body}
    told = parse_sse(http.post("/responses", json=body).content)
    assert summaries(fold(told)) == [[]]
    assert not [event for event in told if "summary" in event["type"]]


def test_its_events_lie_inside_the_item_and_beside_the_text(http: httpx.Client) -> None:
    body = {"model": "m", "input": "think", "stream": True, **ASKED}
    told = parse_sse(http.post("/responses", json=body).content)
    fold(told)
    item = told[2]["item"]
    assert item["summary"] == []
    about = [event for event in told if event.get("output_index") == 0]
    kinds = [event["type"].removeprefix("response.") for event in about]
    pieces = kinds.count("reasoning_text.delta")
    assert pieces > 1
    assert kinds == [
        "output_item.added",
        "content_part.added",
        "reasoning_summary_part.added",
        *["reasoning_text.delta", "reasoning_summary_text.delta"] * pieces,
        "reasoning_text.done",
        "content_part.done",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    for event in about:
        if "summary" in event["type"]:
            assert (event["item_id"], event["summary_index"]) == (item["id"], 0)
    assert about[-2]["part"] == {"type": "summary_text", "text": "Hm.\nWell."}
    assert "status" not in about[-2]


def test_a_summary_that_is_cut_off_says_so(http: httpx.Client) -> None:
    body = {"model": "m", "input": "think", "stream": True, "max_output_tokens": 4, **ASKED}
    told = parse_sse(http.post("/responses", json=body).content)
    (item,) = fold(told)["output"]
    (end,) = (e for e in told if e["type"] == "response.reasoning_summary_part.done")
    assert (item["status"], end["status"]) == ("incomplete", "incomplete")
    assert item["summary"][0]["text"] == item["content"][0]["text"] != "Hm.\nWell."


def test_what_is_stored_and_replayed_is_what_was_told(http: httpx.Client) -> None:
    body = {"model": "m", "input": "think", "stream": True, "background": True, **ASKED}
    told = parse_sse(http.post("/responses", json=body).content)
    final = fold(told)
    assert summaries(final) == [["Hm.\nWell."]]
    path = f"/responses/{final['id']}"
    assert http.get(path).json() == final
    assert parse_sse(http.get(path, params={"stream": "true"}).content) == told


def sent_back(response: Any, *without: str) -> list[Any]:
    """The response's items and the tool's answer, with reasoning as a client sends it that keeps less of it."""
    call = response["output"][-1]
    return [
        {"role": "user", "content": "weather"},
        *({k: v for k, v in item.items() if k not in without} for item in response["output"]),
        {"type": "function_call_output", "call_id": call["call_id"], "output": "it said 18"},
    ]


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    "without",
    [(), ("summary",), ("encrypted_content",), ("content",), ("content", "encrypted_content"), ("content", "id")],
)  # fmt: skip
def test_the_model_reads_its_reasoning_once(
    respond: Any, prompt: Any, store: bool, without: tuple[str, ...]
) -> None:
    """Its text where that came, else what is sealed, else the summary."""
    include = ["reasoning.encrypted_content"]
    first = respond(input="weather", tools=[TOOL], store=store, include=include, **ASKED)
    assert summaries(first) == [[THOUGHT]]
    items = sent_back(first, *without)
    second = respond(input=items, tools=[TOOL], store=store, include=include, **ASKED)
    assert second["output"][-1]["content"][0]["text"] == "It is 18 degrees."
    assert prompt().count(THOUGHT) == 1


def test_the_text_goes_before_another_summary(respond: Any, prompt: Any) -> None:
    first = respond(input="weather", tools=[TOOL], **ASKED)
    items = sent_back(first)
    items[1]["summary"] = [{"type": "summary_text", "text": "Something else."}]
    respond(input=items, tools=[TOOL])
    assert prompt().count(THOUGHT) == 1
    assert "Something else." not in prompt()


def test_a_chain_goes_on_from_it_once(respond: Any, prompt: Any) -> None:
    first = respond(input="weather", tools=[TOOL], **ASKED)
    result = sent_back(first)[-1]
    respond(input=[result], tools=[TOOL], previous_response_id=first["id"], **ASKED)
    assert prompt().count(THOUGHT) == 1


def test_what_came_as_a_summary_is_kept_as_one(http: httpx.Client, respond: Any) -> None:
    """The model reads it as its text; the stored item stays as it was sent."""
    summary = [{"type": "summary_text", "text": "Hm."}]
    items = [{"type": "reasoning", "id": "rs_1", "summary": summary}, {"role": "user", "content": "think"}]  # fmt: skip
    response = respond(input=items)
    listed = http.get(f"/responses/{response['id']}/input_items", params={"order": "asc"}).json()
    assert listed["data"][0] == {"type": "reasoning", "id": "rs_1", "summary": summary}


@pytest.mark.parametrize("setting", ["summary", "generate_summary"])
def test_an_engine_that_passes_requests_on_is_told_what_was_asked(setting: str) -> None:
    body = {"model": "m", "input": "think", "reasoning": {setting: "concise"}}
    request = decode_response_request(json.dumps(body).encode())
    assert hints_of(request)["reasoning_summary"] == "concise"
