"""JSON texts within strings (arguments, schemas, tags) are nested at most as deeply as bodies, the same on each Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from gateway.tools.calls import call_arguments
from gateway.wire.json_text import MAX_DEPTH, decode_text, is_too_deep
from gateway_messages.message import input_of
from gateway_parsers.kit.template import members_of_call
from gateway_testing.server import RunningGateway, run_gateway

DEPTHS = (MAX_DEPTH, 1100, 9000, 200_000)
"""All too deep: the text is in an object."""


def nested(depth: int) -> str:
    return '{"a": ' + "[" * depth + "]" * depth + "}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    rules = [
        {"when": f"deep {depth}", "pieces": [{"call": {"name": "f", "arguments": nested(depth)}}]}
        for depth in DEPTHS[:3]
    ]
    models = {
        "m": {"engine": "scripted", "scripted": {"rules": rules}},
        "tiny": {},
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("nested")) as running:
        yield running


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_nested_too_deeply_is_refused_in_one_way(depth: int) -> None:
    text = nested(depth)
    with pytest.raises(msgspec.DecodeError, match="nested more than 128 levels deep"):
        decode_text(text)
    assert "nested more than" in str(call_arguments(text, is_code=False))
    assert list(input_of(text)) == ["INVALID_JSON"]
    assert members_of_call(text) is None


def test_what_is_nested_as_deeply_as_bodies_may_be_is_read() -> None:
    text = nested(MAX_DEPTH - 1)
    assert not is_too_deep(decode_text(text))
    assert call_arguments(text, is_code=False) == input_of(text) == members_of_call(text)


@pytest.mark.parametrize("depth", DEPTHS[:3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_deep_arguments_of_a_model_reach_the_client(
    gateway: RunningGateway, path: str, stream: bool, depth: int
) -> None:
    schema = {"type": "object"}
    said = f"deep {depth}"
    body: dict[str, Any] = {"model": "m", "stream": stream}
    match path:
        case "/responses":
            body |= {
                "input": said,
                "tools": [{"type": "function", "name": "f", "parameters": schema}],
            }
        case "/chat/completions":
            function = {"name": "f", "parameters": schema}
            tools = [{"type": "function", "function": function}]
            body |= {"messages": [{"role": "user", "content": said}], "tools": tools}
        case _:
            body |= {"messages": [{"role": "user", "content": said}], "max_tokens": 50_000}
            body |= {"tools": [{"name": "f", "input_schema": schema}]}
    answer = httpx.post(gateway.base_url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text[:500]
    assert "server_error" not in answer.text
    assert answer.text.count("[") > depth


@pytest.mark.parametrize("model", ["m", "tiny"])
@pytest.mark.parametrize("depth", DEPTHS[:3])
def test_deep_arguments_of_a_conversation_are_read_by_the_model(
    gateway: RunningGateway, model: str, depth: int
) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": nested(depth)}
    output = {"type": "function_call_output", "call_id": "c", "output": nested(depth)}
    answer = httpx.post(
        f"{gateway.base_url}/responses",
        json={"model": model, "input": [call, output], "max_output_tokens": 1},
        timeout=60,
    )
    assert answer.status_code in (200, 400), answer.text[:500]
    if answer.status_code == 400:
        assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("field", ["structural_tag", "json"])
def test_deep_texts_of_schemas_and_tags_are_refused(
    gateway: RunningGateway, field: str, depth: int
) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "structured_outputs": {field: nested(depth)},
    }
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=body, timeout=60)
    assert answer.status_code == 400, answer.text[:500]
    assert json.loads(answer.text)["error"]["param"].startswith(f"structured_outputs.{field}")
