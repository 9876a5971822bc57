"""The scripted engine, which has no model, invents no text without end: constraints of requests cost no other request anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

DOUBLING = "(a)" + "".join(rf"(\{n}\{n})" for n in range(1, 60))
MANY = 1_000_000_000
SCHEMAS: dict[str, dict[str, Any]] = {
    "repeated": {"type": "string", "pattern": "(((((a{100}){100}){100}){100}){100})"},
    "ambiguous": {"type": "string", "pattern": "(a|aa)+(?=q)b", "minLength": 60},
    "doubling": {"type": "string", "pattern": DOUBLING},
    "never": {"type": "string", "pattern": "a", "maxLength": 0, "minLength": MANY},
    "long": {"type": "string", "minLength": MANY},
    "many": {"type": "array", "minItems": MANY},
    "distinct": {"type": "array", "minItems": 90_000, "uniqueItems": True},
    "wide": {"type": "object", "minProperties": MANY},
    "tall": {"type": "array", "minItems": 90_000, "items": {"type": "string", "minLength": 90_000}},
}
PATTERNS = ["(((((a{100}){100}){100}){100}){100})", DOUBLING, "(a|aa){60}(?=q)b"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(
        {"models": {"m": {"engine": "scripted"}}}, tmp_path_factory.mktemp("constraints")
    ) as running:
        yield running


CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def refused(gateway: RunningGateway, path: str, **body: Any) -> None:
    answer = httpx.post(gateway.base_url + path, json=body, timeout=60)
    assert answer.status_code == 400, answer.text[:500]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_whose_smallest_instance_is_too_large_or_hard_to_find_is_refused(
    gateway: RunningGateway, name: str
) -> None:
    wanted = {"name": "x", "schema": SCHEMAS[name]}
    format_ = {"type": "json_schema", "json_schema": wanted}
    refused(gateway, "/chat/completions", **CHAT, response_format=format_)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_whose_text_is_too_long_or_hard_to_find_is_refused(
    gateway: RunningGateway, pattern: str
) -> None:
    wanted = {"regex": pattern}
    refused(gateway, "/completions", model="m", prompt="hi", structured_outputs=wanted)


def test_a_forced_tool_with_such_a_schema_is_refused(gateway: RunningGateway) -> None:
    parameters = {"type": "object", "properties": {"a": SCHEMAS["repeated"]}, "required": ["a"]}
    function = {"name": "f", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    refused(gateway, "/chat/completions", **CHAT, tools=tools, tool_choice="required")


def test_a_pattern_that_is_met_is_answered(gateway: RunningGateway) -> None:
    wanted = {"regex": "[a-c]{3}(x|y)+"}
    body = {"model": "m", "prompt": "hi", "structured_outputs": wanted}
    answer = httpx.post(f"{gateway.base_url}/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["text"] == "aaax"
