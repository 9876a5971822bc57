"""`/v1/responses/compact`, and settings that items change: conversations that are rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet
from openai import BadRequestError
from openai.types.responses import ResponseUsage

from gateway_testing.server import RunningGateway, run_gateway

RULES = [
    {"when": "Write nothing but the summary", "pieces": [{"reasoning": "Hm."}, {"text": "The user is called Ada."}]},
    {"when": "who am I", "pieces": [{"text": "I do not know."}]},
    {"when": "is called Ada.", "pieces": [{"text": "I was told."}]},
    {"when": "say as json", "pieces": [{"text": "{}"}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {"engine": "scripted", "scripted": {"rules": RULES}}
    small = {"engine": "scripted", "scripted": {"rules": RULES}, "max_model_len": 400}
    config = {
        "server": {"reasoning_keys": [Fernet.generate_key().decode()]},
        "models": {"m": model, "small": small},
    }
    with run_gateway(config, tmp_path_factory.mktemp("compaction")) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Any]:
    with gateway.client() as client:
        yield client


HISTORY: list[Any] = [
    {"role": "user", "content": "My name is Ada."},
    {"role": "assistant", "content": "Hello, Ada."},
    {"role": "user", "content": "who am I"},
]


def test_a_conversation_becomes_its_users_messages_and_a_sealed_summary(client: Any) -> None:
    made = client.responses.compact(model="m", input=HISTORY)
    assert made.object == "response.compaction"
    assert [item.type for item in made.output] == ["message", "message", "compaction"]
    assert [item.role for item in made.output[:2]] == ["user", "user"]
    assert "Ada" not in made.output[-1].encrypted_content
    ResponseUsage.model_validate(made.usage.to_dict())
    assert made.usage.output_tokens > 0


def test_the_model_reads_the_summary_where_it_stands(client: Any) -> None:
    """Sent back with the next message, stored or not, and kept by the responses that follow."""
    made = client.responses.compact(model="m", input=HISTORY)
    window = [item.to_dict(warnings=False) for item in made.output]
    answered = client.responses.create(
        model="m", input=[*window, {"role": "user", "content": "and"}]
    )
    assert answered.output_text == "I was told."
    chained = client.responses.create(model="m", input="so", previous_response_id=answered.id)
    assert chained.output_text == "I was told."
    shown = client.responses.input_items.list(answered.id, order="asc").data
    assert shown[2].to_dict() == window[2]


def test_a_stored_response_is_compacted_by_its_id_and_nothing_is_stored(
    client: Any, gateway: RunningGateway
) -> None:
    first = client.responses.create(model="m", input="who am I")
    made = client.responses.compact(model="m", previous_response_id=first.id)
    assert [item.type for item in made.output] == ["message", "compaction"]
    assert httpx.get(f"{gateway.base_url}/responses/{made.id}").status_code == 404


def test_what_was_compacted_can_be_compacted_again(client: Any) -> None:
    made = client.responses.compact(model="m", input=HISTORY)
    again = client.responses.compact(
        model="m", input=[item.to_dict(warnings=False) for item in made.output]
    )
    assert [item.type for item in again.output] == ["message", "message", "compaction"]


def test_a_conversation_that_is_too_long_is_compacted_without_its_oldest_turns(client: Any) -> None:
    long = [
        {"role": role, "content": f"{number} " + "word " * 60}
        for number in range(10)
        for role in ("user", "assistant")
    ]
    with pytest.raises(BadRequestError):
        client.responses.create(model="small", input=[*long, {"role": "user", "content": "x"}])
    made = client.responses.compact(model="small", input=long)
    assert [item.type for item in made.output] == [*["message"] * 10, "compaction"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "compaction", "encrypted_content": "nonsense"}]}, "input"),
        ({"previous_response_id": "resp_nothing"}, "previous_response_id"),
    ],
)
def test_what_cannot_be_compacted_is_refused(
    gateway: RunningGateway, body: dict[str, Any], param: str
) -> None:
    answer = httpx.post(f"{gateway.base_url}/responses/compact", json={"model": "m", **body})
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"].startswith(param)


def test_an_update_of_the_configuration_holds_until_the_next(client: Any) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    update = {
        "type": "configuration_update",
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}},
    }
    first = client.responses.create(
        model="m",
        input=[update, {"role": "user", "content": "say as json"}],
        reasoning={"effort": "high"},
    )
    assert first.reasoning.effort == "low"
    assert first.text.format.type == "json_schema"
    second = client.responses.create(
        model="m",
        previous_response_id=first.id,
        input=[
            {"type": "configuration_update", "text": {"format": {"type": "text"}}},
            {"role": "user", "content": "who am I"},
        ],
    )
    assert second.reasoning.effort == "low"
    assert second.text.format.type == "text"


def test_what_asks_for_no_output_is_there_to_be_gone_on_from(client: Any) -> None:
    warm = client.responses.create(
        model="m", input="My name is Ada.", extra_body={"generate": False}
    )
    assert (warm.status, warm.output) == ("completed", [])
    then = client.responses.create(model="m", input="who am I", previous_response_id=warm.id)
    assert then.output_text == "I do not know."
    prewarm = {"prompt_cache_options": {"prewarm": True, "mode": "implicit"}}
    cached = client.responses.create(model="m", input="who am I", extra_body=prewarm)
    assert cached.output == []
    assert cached.to_dict()["prompt_cache_options"] == prewarm["prompt_cache_options"]


def test_what_is_to_be_echoed_is(client: Any) -> None:
    sent: dict[str, Any] = {
        "service_tier": "flex",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "safety_identifier": "s",
        "user": "u",
        "metadata": {"a" * 64: "b" * 512},
        "max_tool_calls": 3,
        "top_logprobs": 20,
        "truncation": "auto",
        "parallel_tool_calls": False,
        "include": ["file_search_call.results", "web_search_call.action.sources"],
        "stream_options": None,
    }
    response = client.responses.create(model="m", input="who am I", **sent)
    told = client.responses.retrieve(response.id).to_dict()
    echoed = {name: told[name] for name in sent if name not in ("include", "stream_options")}
    assert echoed == {name: sent[name] for name in echoed}
