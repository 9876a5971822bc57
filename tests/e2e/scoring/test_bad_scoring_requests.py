"""Bad requests to /v1/rerank and /v1/score, each with its status, parameter and code."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

RERANK: dict[str, Any] = {"model": "ranks", "query": "x", "documents": ["a", "b"]}
SCORE: dict[str, Any] = {"model": "ranks", "text_1": "x", "text_2": ["a", "b"]}
LONG = "word " * 100

# name: (path, changes (None removes), status, param, code)
CASES: dict[str, tuple[str, dict[str, Any], int, str | None, str | None]] = {
    "no query": ("rerank", {"query": None}, 400, "query", "missing_required_parameter"),
    "query is a number": ("rerank", {"query": 3}, 400, "query", "invalid_type"),
    "query is empty": ("rerank", {"query": " \n"}, 400, "query", "empty_string"),
    "no documents": ("rerank", {"documents": None}, 400, "documents", "missing_required_parameter"),
    "documents are a text": ("rerank", {"documents": "a"}, 400, "documents", "invalid_type"),
    "documents are empty": ("rerank", {"documents": []}, 400, "documents", "empty_array"),
    "a document is empty": ("rerank", {"documents": ["a", ""]}, 400, "documents[1]", "empty_string"),
    "a document is a list": ("rerank", {"documents": ["a", ["b"]]}, 400, "documents[1]", "invalid_type"),
    "an object without text": ("rerank", {"documents": [{"image": "b"}]}, 400, "documents[0]", "invalid_type"),
    "an object's text is a number": ("rerank", {"documents": [{"text": 1}]}, 400, "documents[0].text", "invalid_type"),
    "too many documents": ("rerank", {"documents": ["a"] * 9}, 400, "documents", "array_above_max_length"),
    "too many bytes": ("rerank", {"documents": ["ü" * 500] * 2}, 400, "documents", "string_above_max_length"),
    "a query that counts often": ("rerank", {"query": "y" * 400, "documents": ["a"] * 5}, 400, "documents", "string_above_max_length"),
    "too many tokens": ("rerank", {"documents": ["a", LONG]}, 400, "documents[1]", "context_length_exceeded"),
    "negative top_n": ("rerank", {"top_n": -1}, 400, "top_n", "integer_below_min_value"),
    "top_n is text": ("rerank", {"top_n": "2"}, 400, "top_n", "invalid_type"),
    "return_documents is a number": ("rerank", {"return_documents": 1}, 400, "return_documents", "invalid_type"),
    "priority is text": ("rerank", {"priority": "high"}, 400, "priority", "invalid_type"),
    "no truncation here": ("rerank", {"truncate_prompt_tokens": 5}, 400, "truncate_prompt_tokens", "unsupported_parameter"),
    "no truncation of documents here": ("rerank", {"max_tokens_per_doc": 5}, 400, "max_tokens_per_doc", "unsupported_parameter"),
    "an instruction": ("rerank", {"instruction": "x"}, 400, "instruction", "unsupported_parameter"),
    "the other side": ("rerank", {"truncation_side": "left"}, 400, "truncation_side", "unsupported_parameter"),
    "tokens of answers": ("score", {"label_token_ids": [5]}, 400, "label_token_ids", "unsupported_parameter"),
    "fields": ("rerank", {"rank_fields": ["title"]}, 400, "rank_fields", "unsupported_parameter"),
    "a softmax": ("score", {"softmax": False}, 400, "softmax", "unsupported_parameter"),
    "unknown model": ("rerank", {"model": "ada"}, 404, "model", "model_not_found"),
    "a model that embeds": ("rerank", {"model": "vectors"}, 400, "model", "model_not_supported"),
    "several rerank": ("rerank", {"model": None}, 400, "model", "missing_required_parameter"),
    "no texts": ("score", {"text_1": None, "text_2": None}, 400, "queries", "missing_required_parameter"),
    "half of the texts": ("score", {"text_2": None}, 400, "text_2", "missing_required_parameter"),
    "more queries": ("score", {"text_1": ["x", "y", "z"]}, 400, "text_1", "invalid_value"),
    "many queries, one text": ("score", {"text_1": ["x", "y"], "text_2": "a"}, 400, "text_1", "invalid_value"),
    "an empty query of several": ("score", {"text_1": ["x", ""]}, 400, "text_1[1]", "empty_string"),
    "a long text": ("score", {"text_2": LONG}, 400, "text_2", "context_length_exceeded"),
    "a long text of several": ("score", {"text_2": ["a", LONG]}, 400, "text_2[1]", "context_length_exceeded"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_bad_request_has_its_envelope(raw: httpx.Client, name: str) -> None:
    path, changes, status, param, code = CASES[name]
    body = {**(RERANK if path == "rerank" else SCORE), **changes}
    answer = raw.post(f"/v1/{path}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert error["message"].endswith(".")
    assert not raw.post("/v1/rerank", json=RERANK).is_error


def test_what_is_neutral_is_accepted(raw: httpx.Client) -> None:
    neutral = {
        "max_tokens_per_query": 0,
        "max_tokens_per_doc": 0,
        "instruction": None,
        "user": "u",
        "truncation_side": "right",
        "padding": False,
        "item_first": False,
    }
    assert raw.post("/v1/rerank", json={**RERANK, **neutral}).status_code == 200


def test_what_nobody_knows_is_counted_and_passed_over(raw: httpx.Client) -> None:
    assert raw.post("/v1/score", json={**SCORE, "colour": "red"}).status_code == 200
    assert (
        'gateway_unknown_parameters_total{parameter="other",route="/v1/score"} 1.0'
        in raw.get("/metrics").text
    )
