"""What an engine refuses to enforce is named by its place in the request, in each API's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway

pytest.importorskip("xllamacpp", reason="the engine llamacpp is not installed")

BAD: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
GOOD: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


def function(name: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def custom(name: str, definition: str) -> dict[str, Any]:
    grammar = {"syntax": "regex", "definition": definition}
    return {
        "type": "custom",
        "custom": {"name": name, "format": {"type": "grammar", "grammar": grammar}},
    }


def answer_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


F = {"name": "f", "parameters": BAD}
CHAT: dict[str, tuple[dict[str, Any], str]] = {
    "a format": ({"response_format": answer_format(BAD)}, "response_format.json_schema.schema"),
    "a pattern in a format": (
        {"response_format": answer_format({"type": "string", "pattern": "("})},
        "response_format.json_schema.schema",
    ),
    "a guided schema": ({"guided_json": BAD}, "guided_json"),
    "a guided schema as text": ({"guided_json": '{"type": "string", "pattern": "("}'}, "guided_json"),
    "a structured schema": ({"structured_outputs": {"json": BAD}}, "structured_outputs.json"),
    "a guided pattern": ({"guided_regex": "("}, "guided_regex"),
    "a structured pattern": ({"structured_outputs": {"regex": "(?<=a)b"}}, "structured_outputs.regex"),
    "a guided grammar": ({"guided_grammar": "root ::= nothing"}, "guided_grammar"),
    "a strict tool": ({"tools": [function("f", BAD, strict=True)]}, "tools[0].function.parameters"),
    "the second tool": (
        {"tools": [function("f", GOOD), function("g", BAD)], "tool_choice": "required"},
        "tools[1].function.parameters",
    ),
    "a named tool beside a format": (
        {
            "tools": [function("f", GOOD), function("g", BAD)],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
            "response_format": answer_format(GOOD),
        },
        "tools[1].function.parameters",
    ),
    "a format beside a tool": (
        {"tools": [function("f", GOOD, strict=True)], "response_format": answer_format(BAD)},
        "response_format.json_schema.schema",
    ),
    "a custom tool's pattern": (
        {"tools": [function("f", GOOD), custom("c", "(")], "tool_choice": {"type": "custom", "custom": {"name": "c"}}},
        "tools[1].custom.format.grammar.definition",
    ),
    "a legacy function": ({"functions": [F], "function_call": {"name": "f"}}, "functions[0].parameters"),
}  # fmt: skip
FLAT = {"type": "function", "name": "f", "parameters": BAD, "strict": True}
RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "a format": (
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": BAD}}},
        "text.format.schema",
    ),
    "a tool": ({"tools": [FLAT]}, "tools[0].parameters"),
    "a tool in a namespace": (
        {"tools": [{"type": "namespace", "name": "n", "description": "d", "tools": [FLAT]}]},
        "tools[0].tools[0].parameters",
    ),
}
COMPLETIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a format": ({"response_format": answer_format(BAD)}, "response_format.json_schema.schema"),
    "a guided schema": ({"guided_json": BAD}, "guided_json"),
    "a guided pattern": ({"guided_regex": "("}, "guided_regex"),
}


@pytest.fixture(scope="module")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A gateway with the tiny model."""
    config = {"models": {"tiny": {"engine": "llamacpp"}}}
    with (
        run_gateway(config, tmp_path_factory.mktemp("tiny")) as gateway,
        httpx.Client(base_url=gateway.base_url, timeout=30) as client,
    ):
        yield client


def refused(client: httpx.Client, path: str, body: dict[str, Any]) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    param: str = answer.json()["error"]["param"]
    return param


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CHAT)
def test_in_chat(llamacpp: httpx.Client, case: str, stream: bool) -> None:
    asked, param = CHAT[case]
    body = {"messages": [{"role": "user", "content": "x"}], "stream": stream, **asked}
    assert refused(llamacpp, "/chat/completions", body) == param


@pytest.mark.parametrize("case", RESPONSES)
def test_in_responses(llamacpp: httpx.Client, case: str) -> None:
    asked, param = RESPONSES[case]
    assert refused(llamacpp, "/responses", {"input": "x", **asked}) == param


@pytest.mark.parametrize("case", COMPLETIONS)
def test_in_completions(llamacpp: httpx.Client, case: str) -> None:
    asked, param = COMPLETIONS[case]
    assert refused(llamacpp, "/completions", {"prompt": "x", **asked}) == param
