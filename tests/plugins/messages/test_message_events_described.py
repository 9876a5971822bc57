"""The events of a streamed message are as `/openapi.json` describes them, and as the vendor's client knows them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

import anthropic.types as sdk
import httpx
import msgspec
import pytest
from anthropic.types import raw_message_delta_event

from gateway_messages.stream_events import BlockDelta, MessageEnd, MessageEvent
from tests.plugins.messages.messages_grammar import parse_events

Schema = dict[str, Any]


@pytest.fixture
def document(raw: httpx.Client) -> Schema:
    found: Schema = raw.get("/openapi.json").json()
    return found


def described(document: Schema) -> Schema:
    created = document["paths"]["/v1/messages"]["post"]
    found: Schema = created["responses"]["200"]["content"]["text/event-stream"]["schema"]
    return found


CALL = {"name": "get_weather", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("prompt", "more"),
    [
        ("hello", {}),
        ("think first", {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
        ("two cities", {"tools": [CALL]}),
        ("half a call", {"tools": [CALL]}),
        ("filter it", {}),
        ("break down", {}),
        ("one two three", {"stop_sequences": ["three"]}),
    ],
)
def test_events_are_as_described(
    raw: httpx.Client, document: Schema, prompt: str, more: Schema
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = {**described(document), "components": document["components"]}
    validator = jsonschema.Draft202012Validator(schema)
    body = {
        "model": "scripted", "max_tokens": 2000, "stream": True, **more,
        "messages": [{"role": "user", "content": prompt}],
    }  # fmt: skip
    answer = raw.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    found = parse_events(answer.content)
    assert len(found) > 3
    for event in found:
        validator.validate(event)
        # Nothing is sent that is not described, and nothing that is described is missing.
        assert msgspec.to_builtins(msgspec.convert(event, MessageEvent, strict=True)) == event


def tags(union: Any) -> dict[str, Any]:
    return {str(each.__struct_config__.tag): each for each in get_args(union)}


def models(union: Any) -> Iterator[tuple[str, Any]]:
    for each in get_args(get_args(union)[0]):
        yield each.model_fields["type"].annotation.__args__[0], each


def fields(cls: Any) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(cls)} | {"type"}


def test_the_vendors_events_are_described(document: Schema) -> None:
    mapping = described(document)["discriminator"]["mapping"]
    assert set(mapping) == set(tags(MessageEvent))
    for union, own in (
        (sdk.RawMessageStreamEvent, MessageEvent),
        (sdk.RawContentBlockDelta, BlockDelta),
    ):
        known = tags(own)
        for tag, model in models(union):
            assert set(model.model_fields) == fields(known[tag]), tag
    delta = raw_message_delta_event.Delta.model_fields
    assert set(delta) == fields(MessageEnd) - {"type"}


def test_each_event_says_what_it_is() -> None:
    for each in (*get_args(MessageEvent), *get_args(BlockDelta)):
        assert inspect.getdoc(each), each
