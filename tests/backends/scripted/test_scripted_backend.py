"""The scripted engine behind a running gateway: what a client developer gets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.base.errors import ConfigurationError
from gateway.plugins.hookspecs import EngineContext
from gateway_scripted import ScriptedConfig, open_scripted
from gateway_testing import check_plugin
from gateway_testing.server import RunningGateway, run_gateway

SCENARIO: list[dict[str, Any]] = [
    {
        "when": "weather in Oslo",
        "pieces": [
            {"reasoning": "I should look it up."},
            {"text": "Let me see."},
            {"call": {"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}},
            {"call": {"name": "get_weather", "arguments": {"city": "Tromsø"}}},
        ],
    },
    {"when": "-3 degrees", "pieces": [{"text": "It is cold in Oslo."}]},
    {
        "when": "run the script",
        "pieces": [{"custom_call": {"name": "shell", "input": 'echo "hi"\n'}}],
    },
    {"when": "too much", "error": {"status": 429, "message": "Slow down."}},
    {"when": "fail halfway", "pieces": [{"text": "so far"}], "finish": "error"},
    {"when": "a long one", "pieces": [{"text": "word "}], "repeat": 50, "chunk": 7},
    {"when": "crash", "finish": "crash"},
]
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
    },
}
FORMATS = ("qwen3", "hermes", "qwen3_json")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("scripted")
    (folder / "scenario.json").write_text(json.dumps(SCENARIO), encoding="utf-8")
    models: dict[str, Any] = {
        name: {"engine": "scripted", "path": "scenario.json", "parser": name} for name in FORMATS
    }
    models["crashing"] = {
        "engine": "scripted",
        "path": "scenario.json",
        "scripted": {"recover_after": 60},
    }
    with run_gateway({"models": models}, folder) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


def test_it_is_an_installed_plugin() -> None:
    assert check_plugin("scripted").offers == ["engine scripted"]


@pytest.mark.parametrize("model", FORMATS)
def test_a_tool_loop_goes_through_every_format(client: openai.OpenAI, model: str) -> None:
    """Also that one process serves several models in different formats."""
    first = client.responses.create(model=model, input="the weather in Oslo?", tools=[WEATHER])
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in calls] == [
        {"city": "Oslo", "days": 2},
        {"city": "Tromsø"},
    ]
    assert "Let me see." in first.output_text
    results: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "-3 degrees"}
        for call in calls
    ]
    second = client.responses.create(
        model=model, input=results, tools=[WEATHER], previous_response_id=first.id
    )
    assert second.output_text == "It is cold in Oslo."


def test_reasoning_is_an_item_of_its_own(client: openai.OpenAI) -> None:
    response = client.responses.create(model="qwen3", input="weather in Oslo", tools=[WEATHER])
    kinds = [item.type for item in response.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]


def test_a_free_text_tool_is_called(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="qwen3", input="run the script", tools=[{"type": "custom", "name": "shell"}]
    )
    (call,) = response.output
    assert call.type == "custom_tool_call"
    assert call.input == 'echo "hi"\n'


def test_without_a_match_it_echoes(client: openai.OpenAI) -> None:
    response = client.responses.create(model="hermes", input="Grüße aus 日本 🙂")
    assert response.output_text == "Grüße aus 日本 🙂"


def test_a_forced_tool_and_a_forced_schema_get_minimal_instances(client: openai.OpenAI) -> None:
    forced = client.responses.create(
        model="qwen3", input="hello", tools=[WEATHER], tool_choice="required"
    )
    (call,) = (item for item in forced.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "", "days": 1}
    shaped = client.responses.create(
        model="qwen3",
        input="hello",
        text={"format": {"type": "json_schema", "name": "w", "schema": WEATHER["parameters"]}},
    )
    assert json.loads(shaped.output_text) == {"city": "", "days": 1}


def test_chunks_and_repeats_stream(client: openai.OpenAI) -> None:
    with client.responses.stream(model="qwen3", input="a long one") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "word " * 50
    assert len(deltas) > 30


def test_stops_limits_and_logprobs_are_honoured(client: openai.OpenAI) -> None:
    cut = client.responses.create(model="qwen3", input="a long one", max_output_tokens=16)
    assert cut.status == "incomplete"
    assert cut.usage is not None
    assert cut.usage.output_tokens == 16
    response = client.responses.create(
        model="qwen3",
        input="a long one",
        top_logprobs=2,
        include=["message.output_text.logprobs"],
    )
    (item,) = response.output
    assert item.type == "message"
    (part,) = item.content
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert b"".join(bytes(each.bytes) for each in part.logprobs) == part.text.encode()
    assert {len(each.top_logprobs) for each in part.logprobs} == {2}


def test_an_error_has_its_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.RateLimitError, match=r"Slow down\."):
        client.responses.create(model="qwen3", input="too much")


def test_a_failure_halfway_is_a_failed_response(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="qwen3", input="fail halfway", stream=True))
    assert events[-1].type == "response.failed"
    assert "so far" in "".join(e.delta for e in events if e.type == "response.output_text.delta")


def test_a_crash_heals(gateway: RunningGateway, client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="crashing", input="crash", stream=True))
    assert events[-1].type == "response.failed"
    with pytest.raises(openai.APIStatusError) as refused:
        client.responses.create(model="crashing", input="hello")
    assert refused.value.status_code == 503
    engine: Any = gateway.services.models["crashing"].engine
    engine._clock = lambda: time.monotonic() + 61
    assert client.responses.create(model="crashing", input="hello").output_text == "hello"


CONTEXT = EngineContext(name="m", path=None)


@pytest.mark.anyio
async def test_the_configuration_reaches_the_engine() -> None:
    config = ScriptedConfig(
        architecture="Qwen3ForCausalLM", model_type="qwen3", special_tokens=["<x>"]
    )
    context = EngineContext(name="m", path=None, max_model_len=77)
    async with open_scripted(config, context) as engine:
        assert engine.info.name == "m"
        assert engine.info.architecture == "Qwen3ForCausalLM"
        assert engine.info.max_model_len == 77
        assert len(engine.tokenizer.encode("<x>")) == 1


@pytest.mark.anyio
async def test_rules_of_the_configuration_come_after_the_files(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text('[{"when": "a"}]')
    from gateway_scripted import Rule

    config = ScriptedConfig(scenario=str(path), rules=[Rule(when="b")])
    async with open_scripted(config, CONTEXT) as engine:
        assert [rule.when for rule in engine.scenario.rules] == ["a", "b"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("config", "path", "complaint"),
    [
        (ScriptedConfig(scenario="a.json"), "b.json", "two scenarios"),
        (ScriptedConfig(scenario="nowhere.json"), None, "cannot be read"),
        (ScriptedConfig(special_tokens=[str(n) for n in range(2000)]), None, "at most 1024"),
    ],
)
async def test_a_mistake_in_the_configuration_is_a_sentence(
    config: ScriptedConfig, path: str | None, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        async with open_scripted(config, EngineContext(name="m", path=path)):
            pytest.fail("it opened")
