"""Checks of output in JSON, according to a schema."""

from __future__ import annotations

import json

from gateway_conform.checks.asking import chat, output_text, respond, respond_streamed
from gateway_conform.checks.refusals import require_error
from gateway_conform.client import Json
from gateway_conform.outcome import CheckFailed, require
from gateway_conform.registry import ServerUnderTest, check
from gateway_conform.response_stream import fold

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "capital": {"type": "string", "maxLength": 40},
        "continent": {"type": "string", "enum": ["Europe", "Asia", "Africa"]},
        "known": {"type": "boolean"},
    },
    "required": ["capital", "continent", "known"],
    "additionalProperties": False,
}
FORMAT: Json = {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}


def _require_valid(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        raise CheckFailed(f"the text is no JSON: {text[:200]!r}") from None
    require(isinstance(value, dict), f"the text is {text[:200]!r}")
    require(set(value) == set(SCHEMA["required"]), f"the keys are {sorted(value)}")
    require(isinstance(value["capital"], str), "capital is no string")
    require(
        value["continent"] in ("Europe", "Asia", "Africa"), f"continent is {value['continent']!r}"
    )
    require(isinstance(value["known"], bool), "known is no boolean")


@check("structured output", "text.format with a schema gives JSON that is valid under it")
def by_schema(server: ServerUnderTest) -> None:
    response = respond(server, text={"format": FORMAT}, max_output_tokens=512)
    require(response["text"]["format"]["type"] == "json_schema", "the response has another format")
    _require_valid(output_text(response))


@check("structured output", "the same in a stream")
def by_schema_streamed(server: ServerUnderTest) -> None:
    final = fold(respond_streamed(server, text={"format": FORMAT}, max_output_tokens=512))
    _require_valid(output_text(final))


@check("structured output", "json_object gives a JSON object")
def json_object(server: ServerUnderTest) -> None:
    response = respond(
        server,
        input="Give the capital of France as a JSON object with the key capital.",
        text={"format": {"type": "json_object"}},
        max_output_tokens=1024,
    )
    if response["status"] == "completed":
        require(isinstance(json.loads(output_text(response)), dict), "the text is no JSON object")


@check("structured output", "chat: response_format with a schema gives JSON that is valid under it")
def by_schema_in_chat(server: ServerUnderTest) -> None:
    schema = {"name": "answer", "schema": SCHEMA, "strict": True}
    form = {"type": "json_schema", "json_schema": schema}
    completion = chat(server, response_format=form, max_completion_tokens=512)
    _require_valid(completion["choices"][0]["message"]["content"])


@check("structured output", "a schema that is none is refused with 400")
def no_schema(server: ServerUnderTest) -> None:
    body = {
        "model": server.model,
        "input": "Hello",
        "text": {"format": {**FORMAT, "schema": {"type": "no such type"}}},
    }
    require_error(server.client.post("/responses", body), 400, param="text")


@check("structured output", "a format without its schema is refused with 400")
def without_schema(server: ServerUnderTest) -> None:
    body = {
        "model": server.model,
        "input": "Hello",
        "text": {"format": {"type": "json_schema", "name": "answer"}},
    }
    require_error(server.client.post("/responses", body), 400, param="text")


@check("structured output", "a strict schema that allows further properties is refused with 400")
def open_schema(server: ServerUnderTest) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    body = {
        "model": server.model,
        "input": "Hello",
        "text": {"format": {**FORMAT, "schema": schema, "strict": True}},
    }
    require_error(server.client.post("/responses", body), 400, param="text")
