"""Bad requests for embeddings, each with its exact status and envelope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway

OK: dict[str, Any] = {"model": "vectors", "input": "hello"}
KIND = "expected a string or token ids, but got"
EMPTY = "An input has at least one character or token."


def with_(**changes: Any) -> dict[str, Any]:
    return {**OK, **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in OK.items() if key != name}


# name: (body, status, message, param, code)
CASES: dict[str, tuple[Any, int, str, str | None, str | None]] = {
    "not JSON": (b"{", 400, "We could not parse the JSON body of your request: Input data was truncated.", None, "invalid_json"),
    "a list": ([1], 400, "The request body must be a JSON object, but it is an array.", None, "invalid_json"),
    "no model, several embed": (without("model"), 400, "'model' is missing. Name one of: vectors, french, both, tiny.", "model", "missing_required_parameter"),
    "unknown model": (with_(model="ada"), 404, "The model 'ada' does not exist here. Models: vectors, french, words, both, tiny.", "model", "model_not_found"),
    "model is a number": (with_(model=3), 400, "Invalid type for 'model': expected a string, but got an integer instead.", "model", "invalid_type"),
    "a model that cannot": (with_(model="words"), 400, "The model 'words' does not embed. Models that do: vectors, french, both, tiny.", "model", "model_not_supported"),
    "no input": (without("input"), 400, "Missing required parameter: 'input'. Send a string, a list of token ids, or a list of either.", "input", "missing_required_parameter"),
    "input is null": (with_(input=None), 400, "Missing required parameter: 'input'. Send a string, a list of token ids, or a list of either.", "input", "missing_required_parameter"),
    "input is a number": (with_(input=3), 400, f"Invalid type for 'input': {KIND} an integer instead.", "input", "invalid_type"),
    "input is an object": (with_(input={}), 400, f"Invalid type for 'input': {KIND} an object instead.", "input", "invalid_type"),
    "empty text": (with_(input=""), 400, f"Invalid 'input': empty string. {EMPTY}", "input", "empty_string"),
    "empty list": (with_(input=[]), 400, f"Invalid 'input': empty array. {EMPTY}", "input", "empty_array"),
    "empty text of several": (with_(input=["a", ""]), 400, f"Invalid 'input[1]': empty string. {EMPTY}", "input[1]", "empty_string"),
    "empty ids of several": (with_(input=[[5], []]), 400, f"Invalid 'input[1]': empty array. {EMPTY}", "input[1]", "empty_array"),
    "a decimal among them": (with_(input=["a", 1.5]), 400, f"Invalid type for 'input[1]': {KIND} a decimal instead.", "input[1]", "invalid_type"),
    "text among ids": (with_(input=[5, "a"]), 400, "Invalid type for 'input[1]': expected an integer, but got a string instead.", "input[1]", "invalid_type"),
    "text in a list of ids": (with_(input=[[5], [5, "a"]]), 400, "Invalid type for 'input[1][1]': expected an integer, but got a string instead.", "input[1][1]", "invalid_type"),
    "negative id": (with_(input=[5, -1]), 400, "Invalid 'input[1]': integer below minimum value. Expected a value >= 0, but got -1 instead.", "input[1]", "integer_below_min_value"),
    "foreign id": (with_(input=[[5], [900]]), 400, "The input cannot be read: 900 is not a token id of this vocabulary.", "input[1]", None),
    "too many": (with_(input=["a"] * 65), 400, "Invalid 'input': at most 64 inputs can be embedded at once, and these are 65. Send several requests.", "input", "array_above_max_length"),
    "too long": (with_(input=[5] * 101), 400, "Invalid 'input': this input has 101 tokens, and the model embeds at most 100 at once. Shorten it, or cut it in pieces.", "input", "context_length_exceeded"),
    "one too long": (with_(input=[[5], [5] * 101]), 400, "Invalid 'input[1]': this input has 101 tokens, and the model embeds at most 100 at once. Shorten it, or cut it in pieces.", "input[1]", "context_length_exceeded"),
    "unknown encoding": (with_(encoding_format="int8"), 400, "Invalid value: 'int8'. Supported values are: 'base64' and 'float'.", "encoding_format", "invalid_value"),
    "no dimension": (with_(dimensions=0), 400, "Invalid 'dimensions': integer below minimum value. Expected a value >= 1, but got 0 instead.", "dimensions", "integer_below_min_value"),
    "too many dimensions": (with_(dimensions=33), 400, "Invalid 'dimensions': the vectors of 'vectors' have 32 numbers, and 33 were asked for.", "dimensions", "integer_above_max_value"),
    "dimensions as text": (with_(dimensions="8"), 400, "Invalid type for 'dimensions': expected an integer, but got a string instead.", "dimensions", "invalid_type"),
    "dimensions of a fixed length": (with_(model="tiny", dimensions=80), 400, "The vectors of 'tiny' have 160 numbers, and cannot be shortened. Leave dimensions out.", "dimensions", "unsupported_parameter"),
    "user is a number": (with_(user=3), 400, "Invalid type for 'user': expected a string, but got an integer instead.", "user", "invalid_type"),
    "priority is text": (with_(priority="high"), 400, "Invalid type for 'priority': expected an integer, but got a string instead.", "priority", "invalid_type"),
    "messages": (with_(messages=[{"role": "user", "content": "x"}]), 400, "Messages are not embedded on this server. Send their text as input.", "messages", "unsupported_parameter"),
    "cutting": (with_(truncate_prompt_tokens=5), 400, "Inputs are not cut on this server. Send shorter ones.", "truncate_prompt_tokens", "unsupported_parameter"),
    "padding": (with_(padding="max_length"), 400, "Inputs are not padded on this server. Leave padding out.", "padding", "unsupported_parameter"),
    "a template's arguments": (with_(chat_template_kwargs={"a": 1}), 400, "Messages are not embedded on this server. Send their text as input.", "chat_template_kwargs", "unsupported_parameter"),
    "half floats": (with_(embed_dtype="float16"), 400, "Vectors have 32-bit floats on this server. Leave embed_dtype out.", "embed_dtype", "unsupported_parameter"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_bad_request_has_its_envelope(raw: httpx.Client, name: str) -> None:
    body, status, message, param, code = CASES[name]
    content = body if isinstance(body, bytes) else None
    answer = raw.post(
        "/v1/embeddings",
        content=content,
        json=body if content is None else None,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == status
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }
    assert answer.json() == {"error": error}


def test_a_method_that_is_none_is_a_405(raw: httpx.Client) -> None:
    assert raw.get("/v1/embeddings").status_code == 405


def test_what_nobody_knows_is_counted_and_passed_over(raw: httpx.Client) -> None:
    answer = raw.post("/v1/embeddings", json={**OK, "inputs": ["a"], "colour": "red"})
    assert answer.status_code == 200
    assert (
        'gateway_unknown_parameters_total{parameter="other",route="/v1/embeddings"} 2.0'
        in raw.get("/metrics").text
    )


def test_where_no_model_embeds_nobody_is_sent_to_one_that_does_not(tmp_path: Path) -> None:
    words = {"engine": "scripted", "scripted": {"task": "generate"}}
    with run_gateway({"models": {"words": words}}, tmp_path) as gateway:
        answer = httpx.post(f"{gateway.base_url}/embeddings", json={"input": "hello"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (
        400,
        "model",
        "model_not_supported",
    )
    assert error["message"] == "None of the models here can do this: words."
