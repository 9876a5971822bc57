"""Requests that must be taken, plain and streamed alike, or refused in OpenAI's envelope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.grammar import fold, parse_sse


@pytest.fixture
def respond(http: httpx.Client) -> Callable[..., dict[str, Any]]:
    """`respond(body, **headers)`: the response, asked for plain and streamed, which must agree on what is said."""

    def ask(body: dict[str, Any], **headers: str) -> dict[str, Any]:
        body = {"model": "scripted", **body}
        plain = http.post("/v1/responses", json=body, headers=headers)
        assert plain.status_code == 200, plain.text
        streamed = http.post("/v1/responses", json={**body, "stream": True}, headers=headers)
        assert streamed.status_code == 200, streamed.text
        final = fold(parse_sse(streamed.content))
        answer: dict[str, Any] = plain.json()
        assert [_shape(item) for item in final["output"]] == [_shape(i) for i in answer["output"]]
        return answer

    return ask


def _shape(item: dict[str, Any]) -> dict[str, Any]:
    """An item without what differs from one run to the next."""
    return {key: value for key, value in item.items() if key not in ("id", "call_id")}


@pytest.fixture
def chat(http: httpx.Client) -> Callable[..., dict[str, Any]]:
    """`chat(body, **headers)`: the first choice's message, asked for plain and streamed, likewise."""

    def ask(body: dict[str, Any], **headers: str) -> dict[str, Any]:
        body = {"model": "scripted", **body}
        plain = http.post("/v1/chat/completions", json=body, headers=headers)
        assert plain.status_code == 200, plain.text
        streamed = http.post("/v1/chat/completions", json={**body, "stream": True}, headers=headers)
        assert streamed.status_code == 200, streamed.text
        folded = fold_chunks(parse_chunks(streamed.content))["choices"][0]["message"]
        answer: dict[str, Any] = plain.json()["choices"][0]["message"]
        assert (folded.get("content") or None) == answer["content"]
        return answer

    return ask


@pytest.fixture
def refused(http: httpx.Client) -> Callable[..., dict[str, Any]]:
    """`refused(path, body)`: the error of a request that cannot be honoured."""

    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = http.post(path, json={"model": "scripted", **body})
        assert answer.status_code == 400, answer.text
        error: dict[str, Any] = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        return error

    return ask
