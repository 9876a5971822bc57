"""What a request's items must keep, and how a client is told where it went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway

USER = {"role": "user", "content": "hello"}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}
SHELL = {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}}
IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}  # fmt: skip
JUNK = {"type": "compaction", "encrypted_content": "junk"}
FORMATS = ("chatml", "harmony")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config = {
        "models": {
            "chatml": {"engine": "scripted"},
            "harmony": {"engine": "scripted", "renderer": "harmony", "parser": "harmony"},
            "short": {"engine": "scripted", "max_model_len": 300},
        }
    }
    with (
        run_gateway(config, tmp_path_factory.mktemp("rules")) as running,
        httpx.Client(base_url=running.base_url, timeout=30) as client,
    ):
        yield client


def told(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["code"]


@pytest.mark.parametrize("model", FORMATS)
@pytest.mark.parametrize("items", [[USER, OUTPUT], [USER, OUTPUT, CALL]])
def test_an_output_without_its_call_is_refused(api: httpx.Client, model: str, items: Any) -> None:
    answer = api.post("/responses", json={"model": model, "input": items})
    assert told(answer) == (400, "input[1].call_id", None)


@pytest.mark.parametrize("model", FORMATS)
@pytest.mark.parametrize(
    "output",
    [
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "x"},
        {"type": "local_shell_call_output", "id": "c1", "output": "x"},
        {"type": "shell_call_output", "call_id": "c1", "output": []},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed"},
        {"type": "tool_search_output", "call_id": "c1", "tools": []},
    ],
    ids=lambda output: output["type"],
)
def test_so_is_every_other_output_without_its_call(
    api: httpx.Client, model: str, output: Any
) -> None:
    answer = api.post("/responses", json={"model": model, "input": [USER, output]})
    named = "call_id" if "call_id" in output else "id"
    assert told(answer) == (400, f"input[1].{named}", None)


@pytest.mark.parametrize("call", [CALL, SHELL])
def test_an_output_is_accepted_after_a_call_of_any_type(api: httpx.Client, call: Any) -> None:
    answer = api.post("/responses", json={"model": "chatml", "input": [USER, call, OUTPUT]})
    assert answer.status_code == 200


def test_an_output_may_answer_a_call_of_the_history(api: httpx.Client) -> None:
    tool = {"type": "function", "name": "f"}
    made = api.post("/responses", json={"model": "chatml", "input": "x", "tools": [tool], "tool_choice": "required"}).json()  # fmt: skip
    call = made["output"][0]
    answer = {**OUTPUT, "call_id": call["call_id"]}
    body = {"model": "chatml", "input": [answer], "previous_response_id": made["id"]}
    assert api.post("/responses", json=body).status_code == 200
    body["input"] = [OUTPUT]
    assert told(api.post("/responses", json=body)) == (400, "input[0].call_id", None)


@pytest.mark.parametrize("model", FORMATS)
def test_a_search_may_come_back_without_its_action(api: httpx.Client, model: str) -> None:
    """As older SDKs, whose types do not have it, send it."""
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    answer = api.post("/responses", json={"model": model, "input": [USER, searched, USER]})
    assert answer.status_code == 200


def test_two_items_of_one_id_are_refused(api: httpx.Client) -> None:
    twice = [{**USER, "id": "msg_1"}, {**USER, "id": "msg_2"}, {**USER, "id": "msg_1"}]
    answer = api.post("/responses", json={"model": "chatml", "input": twice})
    assert told(answer) == (400, "input[2].id", "duplicate_item_id")


@pytest.mark.parametrize("path", ["/responses", "/responses/input_tokens"])
@pytest.mark.parametrize("model", FORMATS)
def test_an_item_is_named_by_its_place_in_the_request(
    api: httpx.Client, model: str, path: str
) -> None:
    made = api.post("/responses", json={"model": model, "input": [USER, USER]}).json()["id"]
    chat = api.post("/conversations", json={"items": [USER, USER, USER]}).json()["id"]
    for history in ({}, {"previous_response_id": made}, {"conversation": chat}):
        for first in ([], [USER]):
            answer = api.post(path, json={"model": model, "input": [*first, IMAGE], **history})
            assert told(answer)[:2] == (400, f"input[{len(first)}].content[0].type")
            answer = api.post(path, json={"model": model, "input": [*first, JUNK], **history})
            assert told(answer)[:2] == (400, f"input[{len(first)}].encrypted_content")


def test_an_item_of_the_history_is_not_named_as_the_requests(api: httpx.Client) -> None:
    chat = api.post("/conversations", json={"items": [USER, IMAGE]}).json()["id"]
    answer = api.post("/responses", json={"model": "chatml", "input": "x", "conversation": chat})
    assert told(answer)[:2] == (400, "conversation")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "empty_string"),
        ("a b", "invalid_value"),
        ("a.b", "invalid_value"),
        ("é", "invalid_value"),
        ("a\n", "invalid_value"),
        ("a" * 65, "string_above_max_length"),
    ],
)
def test_a_formats_name_has_openais_characters(api: httpx.Client, name: str, code: str) -> None:
    form = {"type": "json_schema", "name": name, "schema": {"type": "object"}}
    answer = api.post("/responses", json={"model": "chatml", "input": "x", "text": {"format": form}})  # fmt: skip
    assert told(answer) == (400, "text.format.name", code)


@pytest.mark.parametrize("param", ["prompt_cache_key", "safety_identifier"])
def test_identifiers_have_at_most_64_characters(api: httpx.Client, param: str) -> None:
    body = {"model": "chatml", "input": "x"}
    kept = api.post("/responses", json={**body, param: "k" * 64})
    assert (kept.status_code, kept.json()[param]) == (200, "k" * 64)
    answer = api.post("/responses", json={**body, param: "k" * 65})
    assert told(answer) == (400, param, "string_above_max_length")


LONG = "word " * 60


@pytest.mark.parametrize(
    "items",
    [
        [{"role": "user", "content": LONG}] * 5,
        [USER, *({**each, "call_id": f"c{n}"} for n in range(5) for each in (CALL, {**OUTPUT, "output": LONG}))],
    ],
    ids=["questions", "steps"],
)  # fmt: skip
def test_one_turn_that_is_too_long_is_shortened(api: httpx.Client, items: Any) -> None:
    body = {"model": "short", "input": items}
    assert told(api.post("/responses", json=body)) == (400, "input", "context_length_exceeded")
    answer = api.post("/responses", json={**body, "truncation": "auto"}).json()
    assert 60 < answer["usage"]["input_tokens"] < 300
    listed = api.get(f"/responses/{answer['id']}/input_items").json()["data"]
    assert len(listed) == len(items)
