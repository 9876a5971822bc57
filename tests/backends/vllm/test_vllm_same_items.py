"""The same request gives the same items, whether vLLM or llama.cpp has the model. Also the whole gateway on vLLM."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.testing.server import RunningGateway, run_gateway

pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)
for module in ("xllamacpp", "gateway_llamacpp", "gateway_chat_template", "gateway_parsers"):
    pytest.importorskip(module, reason=f"{module} is not installed")
MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"
CONFIG = {
    "models": {
        "vllm": {
            "engine": "vllm",
            "path": MODEL,
            "max_model_len": 1024,
            "vllm": {"enforce_eager": True, "max_num_seqs": 8},
        },
        "llamacpp": {"engine": "llamacpp", "max_model_len": 1024},
    }
}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
ANSWER = {
    "type": "json_schema",
    "name": "answer",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"sure": {"type": "boolean"}, "color": {"enum": ["red", "blue"]}},
        "required": ["sure", "color"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, cpu_environment: None
) -> Iterator[RunningGateway]:
    with warnings.catch_warnings():
        # While they are imported and started, vLLM, torch and transformers warn about each other.
        warnings.simplefilter("ignore")
        serving = run_gateway(CONFIG, tmp_path_factory.mktemp("gateway"))
        running = serving.__enter__()
    yield running
    serving.__exit__(None, None, None)


def without_ids(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key not in ("id", "call_id")}


REQUESTS: dict[str, dict[str, Any]] = {
    "a greeting": {"input": "hello"},
    "who it is": {"input": "Who are you?"},
    "an echo": {"input": "Please say: the quick brown fox"},
    "instructions": {"input": "hello", "instructions": "You are a helpful assistant."},
    "a call": {"input": "What is the weather in Paris?", "tools": [WEATHER]},
    "a forced call": {"input": "hello", "tools": [WEATHER], "tool_choice": "required"},
    "a named call": {
        "input": "What is the weather in Rome?",
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
    },
    "no call": {
        "input": "What is the weather in Paris?",
        "tools": [WEATHER],
        "tool_choice": "none",
    },
    "a cut answer": {"input": "hello", "max_output_tokens": 16},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_request_gives_the_same_items(gateway: RunningGateway, name: str) -> None:
    with gateway.client() as client:
        answers = [
            client.responses.create(model=model, temperature=0, **REQUESTS[name])
            for model in ("vllm", "llamacpp")
        ]
    ours, theirs = ([without_ids(item.to_dict()) for item in each.output] for each in answers)
    assert ours == theirs
    assert ours
    assert answers[0].status == answers[1].status
    assert answers[0].usage.input_tokens == answers[1].usage.input_tokens


@pytest.mark.parametrize("model", ["vllm", "llamacpp"])
def test_an_enforced_answer_is_valid(gateway: RunningGateway, model: str) -> None:
    with gateway.client() as client:
        answer = client.responses.create(
            model=model, input="hello", temperature=1.5, text={"format": ANSWER}
        )
    value = json.loads(answer.output_text)
    assert value.keys() == {"sure", "color"}


def test_a_stream_on_vllm_adds_up_to_its_response(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        events = list(
            client.responses.create(
                model="vllm",
                input="hello",
                temperature=0,
                stream=True,
                include=["message.output_text.logprobs"],
                top_logprobs=2,
            )
        )
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type == "response.completed"
    [message] = events[-1].response.output
    assert message.content[0].text == text
    assert "".join(token.token for token in message.content[0].logprobs) == text
