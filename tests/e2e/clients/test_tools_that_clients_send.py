"""Tools with the schemas that libraries make, and what cannot be done and is said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.clients.answers import WEATHER, said

SCHEMAS: dict[str, Any] = {
    "none": None,
    "empty": {},
    "no properties": {"type": "object"},
    "empty properties": {"type": "object", "properties": {}, "required": []},
    "null required": {"type": "object", "properties": {"city": {"type": "string"}}, "required": None},
    "of pydantic": {
        "$defs": {
            "Unit": {"enum": ["c", "f"], "title": "Unit", "type": "string"},
            "Place": {
                "properties": {"city": {"title": "City", "type": "string"}, "near": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None}},
                "required": ["city"],
                "title": "Place",
                "type": "object",
            },
        },
        "properties": {"place": {"$ref": "#/$defs/Place"}, "unit": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}], "default": None}},
        "required": ["place"],
        "type": "object",
        "additionalProperties": False,
    },
    "of zod": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"city": {"type": "string", "description": "é 😀"}, "days": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "old definitions": {
        "definitions": {"a": {"type": ["string", "null"]}},
        "type": "object",
        "properties": {"x": {"allOf": [{"$ref": "#/definitions/a"}]}, "y": {"const": 1}, "z": {"oneOf": [{"type": "number"}, {"type": "array", "items": {}}]}},
        "patternProperties": {"^x-": {"type": "string"}},
    },
    "huge": {
        "type": "object",
        "properties": {
            f"field_{i}": {"type": "object", "description": "d" * 20, "properties": {f"p{j}": {"anyOf": [{"type": "string"}, {"type": "null"}]} for j in range(5)}}
            for i in range(40)
        },
    },
}  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("strict", [None, False, True])
def test_schemas_of_tools_are_taken(
    respond: Any, chat: Any, schema: str, strict: bool | None
) -> None:
    tool = {"name": "t", "description": None, "parameters": SCHEMAS[schema], "strict": strict}
    answer = respond({"input": "hello", "tools": [{"type": "function", **tool}]})
    assert said(answer) == "hello"
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert chat({**body, "tools": [{"type": "function", "function": tool}]})["content"]
    lacking = {k: v for k, v in tool.items() if v is not None}
    assert chat({**body, "tools": [{"type": "function", "function": lacking}]})["content"]


def test_a_call_of_a_schema_with_references_is_forced(respond: Any) -> None:
    tool = {"name": "t", "parameters": SCHEMAS["of pydantic"], "strict": False}
    body = {"input": "hello", "tools": [{"type": "function", **tool}], "tool_choice": "required"}
    call = respond(body)["output"][-1]
    assert call["type"] == "function_call"
    assert json.loads(call["arguments"])["place"] == {"city": ""}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "custom", "name": "note"},
        {"type": "custom", "name": "note", "description": None, "format": None},
        {"type": "custom", "name": "note", "format": {"type": "text"}},
        {"type": "local_shell"},
        {"type": "shell"},
        {"type": "apply_patch"},
        {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "f", "parameters": None, "strict": None}]},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_tools_that_the_client_runs_are_taken(respond: Any, tool: dict[str, Any]) -> None:
    assert said(respond({"input": "hello", "tools": [tool]})) == "hello"


def test_two_tools_of_one_name_are_told_of(refused: Any) -> None:
    error = refused("/v1/responses", {"input": "hello", "tools": [WEATHER, WEATHER]})
    assert "get_weather" in error["message"]


PIXEL = "data:image/png;base64,aGVsbG8="


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": PIXEL},
        {"type": "input_image", "image_url": PIXEL, "file_id": None, "detail": None},
        {"type": "input_image", "file_id": "file_1", "detail": "auto"},
        {"type": "input_audio", "input_audio": {"data": "aGVsbG8=", "format": "wav"}},
    ],
    ids=json.dumps,
)
def test_a_text_model_refuses_what_is_no_text(refused: Any, part: dict[str, Any]) -> None:
    words = {"type": "input_text", "text": "what is it?"}
    items = [{"role": "user", "content": [words, part]}]
    error = refused("/v1/responses", {"input": items})
    assert error["param"].startswith("input")
    kind = part["type"].removeprefix("input_")
    assert kind in error["message"]


@pytest.mark.parametrize("data", ["data:text/plain;base64,aGVsbG8=", "aGVsbG8="])
def test_a_text_model_reads_a_file(respond: Any, data: str) -> None:
    part = {"type": "input_file", "file_data": data, "filename": "a.txt", "detail": None}
    answer = respond({"input": [{"role": "user", "content": [part]}]})
    assert said(answer) == "[File: a.txt]\nhello\n[End of file: a.txt]"


def test_a_text_model_refuses_an_image_of_chat(refused: Any) -> None:
    part = {"type": "image_url", "image_url": {"url": PIXEL}}
    error = refused("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]})
    assert error["param"].startswith("messages")
    assert "image" in error["message"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_choice_among_no_tools_is_refused(refused: Any, choice: Any) -> None:
    error = refused("/v1/responses", {"input": "hello", "tool_choice": choice})
    assert error["param"].startswith("tool_choice")
