"""Items that other servers and other APIs write: read, or refused by name, and never read in part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.engine_prompts import prompts

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
COMPUTER: list[dict[str, Any]] = [
    {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed",
     "action": {"type": "click", "x": 17, "y": 4, "button": "left"}, "pending_safety_checks": []},
    {"type": "computer_call_output", "call_id": "call_1",
     "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}},
]  # fmt: skip
IMAGE: list[dict[str, Any]] = [
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PNG,
     "revised_prompt": "a grey cat"},
]  # fmt: skip
FAILED_IMAGE = [{"type": "image_generation_call", "id": "ig_1", "status": "failed", "result": None}]
PROGRAM: list[dict[str, Any]] = [
    {"type": "program", "id": "prg_1", "call_id": "call_p", "code": "look(3)", "fingerprint": "f"},
    {"type": "function_call", "call_id": "call_f", "name": "look", "arguments": "{}",
     "caller": {"type": "program", "caller_id": "call_p"}},
    {"type": "function_call_output", "call_id": "call_f", "output": "three"},
    {"type": "program_output", "id": "prgo_1", "call_id": "call_p", "status": "completed",
     "result": "seen 3"},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    scripted: dict[str, Any] = {"rules": []}
    config = {
        "models": {
            "blind": {"engine": "scripted", "scripted": scripted},
            "seeing": {"engine": "scripted", "scripted": {**scripted, "media": ["image"]}},
            "harmony": {"engine": "scripted", "renderer": "harmony", "parser": "harmony"},
        }
    }
    with run_gateway(config, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


@pytest.mark.parametrize("model", ["blind", "seeing", "harmony"])
@pytest.mark.parametrize("through", ["input", "conversation"])
@pytest.mark.parametrize(
    ("items", "read"),
    [
        (COMPUTER, ["computer", '"x": 17']),
        (IMAGE, ["image_generation", "a grey cat", "An image was made."]),
        (FAILED_IMAGE, ["No image was made."]),
        (PROGRAM, ["look(3)", "three", "seen 3"]),
    ],
    ids=["computer", "image", "failed image", "program"],
)
def test_calls_that_others_ran_are_read(
    gateway: RunningGateway,
    http: httpx.Client,
    model: str,
    through: str,
    items: list[dict[str, Any]],
    read: list[str],
) -> None:
    body: dict[str, Any] = {"model": model, "input": [{"role": "user", "content": "go on"}]}
    if through == "input":
        body["input"] = [{"role": "user", "content": "start"}, *items, *body["input"]]
    else:
        made = http.post("/conversations", json={"items": items})
        assert made.status_code == 200, made.text
        body["conversation"] = made.json()["id"]
    counted = http.post("/responses/input_tokens", json=body)
    answer = http.post("/responses", json=body)
    assert answer.status_code == 200, answer.text
    prompt = prompts(gateway, model)[-1]
    for text in read:
        assert text in prompt
    engine: Any = gateway.services.models[model].engine
    seen = len(engine.requests[-1].prompt.media)
    assert seen == (model == "seeing" and PNG in json.dumps(items))
    assert counted.json()["input_tokens"] == answer.json()["usage"]["input_tokens"]
    if through == "input":
        listed = http.get(f"/responses/{answer.json()['id']}/input_items?order=asc").json()["data"]
        assert [each["type"] for each in listed[1:-1]] == [each["type"] for each in items]


@pytest.mark.parametrize("items", [COMPUTER[1:], PROGRAM[3:]])
def test_their_outputs_need_their_calls(http: httpx.Client, items: list[dict[str, Any]]) -> None:
    answer = http.post("/responses", json={"model": "blind", "input": items})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[0].call_id"


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ([{"type": "text", "text": "so"}, {"text": "it is"}], ["so", "it is"]),
        ([{"type": "output_text", "text": "so"}, {"type": "input_text", "text": "it is"}], ["so", "it is"]),
        ("so it is", ["so it is"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("member", ["content", "summary"])
def test_reasoning_in_the_words_of_others_is_read(
    gateway: RunningGateway, http: httpx.Client, content: Any, read: list[str], member: str
) -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], member: content},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "again"},
    ]
    answer = http.post("/responses", json={"model": "blind", "input": items})
    assert answer.status_code == 200, answer.text
    for text in read:
        assert text in prompts(gateway, "blind")[-1]
    listed = http.get(f"/responses/{answer.json()['id']}/input_items?order=asc").json()["data"]
    kind = "reasoning_text" if member == "content" else "summary_text"
    assert {part["type"] for part in listed[1][member]} == {kind}


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/responses", {"input": [CALL, {"type": "function_call_output", "call_id": "c", "output": "x", "images": [PNG]}]}, "input[1].images"),
        ("/responses", {"input": [{"role": "user", "content": "what?", "images": [PNG]}]}, "input[0].images"),
        ("/responses", {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}], "attachments": [{"file_id": "file-1"}]}]}, "input[0].attachments"),
        ("/responses/input_tokens", {"input": [{"role": "user", "content": "x", "file_ids": ["file-1"]}]}, "input[0].file_ids"),
        ("/chat/completions", {"messages": [{"role": "user", "content": "what?", "images": [PNG]}]}, "messages[0].images"),
        ("/conversations", {"items": [{"role": "user", "content": "what?", "images": [PNG]}]}, "items[0].images"),
    ],
)  # fmt: skip
def test_images_and_files_beside_the_content_are_refused_by_name(
    http: httpx.Client, path: str, body: dict[str, Any], param: str
) -> None:
    answer = http.post(path, json={"model": "seeing", **body})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, "unknown_parameter")
    assert "parts of" in error["message"]
    empty = json.loads(json.dumps(body).replace(f'["{PNG}"]', "[]"))
    if empty != body:
        assert http.post(path, json={"model": "seeing", **empty}).status_code == 200
