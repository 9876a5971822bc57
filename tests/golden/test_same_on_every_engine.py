"""The same request to the same model gives the same items, whichever engine runs it."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.testing.grammar import fold, parse_sse
from gateway.testing.server import RunningGateway, run_gateway

SAFETENSORS = Path(__file__).parents[1] / "models" / "tiny-qwen3"
# torch and vLLM warn of themselves as they are imported, in the gateway's thread.
pytestmark = pytest.mark.filterwarnings("default")
VLLM = importlib.util.find_spec("vllm") is not None

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
REQUESTS: dict[str, dict[str, Any]] = {
    "greeting": {"input": "Hello!"},
    "fact": {"input": "What is the capital of France?"},
    "thinking": {
        "input": "What is the capital of Italy?",
        "chat_template_kwargs": {"enable_thinking": True},
    },
    "call": {"input": "What is the weather in Paris?", "tools": [WEATHER]},
    "forced call": {
        "input": "Hello!",
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "max_output_tokens": 60,
    },
    "forced call while thinking": {
        "input": "What is the weather in Paris?",
        "tools": [WEATHER],
        "tool_choice": "required",
        "chat_template_kwargs": {"enable_thinking": True},
        "max_output_tokens": 200,
    },
    "schema while thinking": {
        "input": "Choose a colour.",
        "text": {
            "format": {
                "type": "json_schema",
                "name": "choice",
                "schema": {
                    "type": "object",
                    "properties": {"colour": {"enum": ["red", "blue"]}},
                    "required": ["colour"],
                    "additionalProperties": False,
                },
            }
        },
        "chat_template_kwargs": {"enable_thinking": True},
        "max_output_tokens": 200,
    },
    "answer from a result": {
        "input": [
            {"role": "user", "content": "What is the weather in Paris?"},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Paris"}'},
            {"type": "function_call_output", "call_id": "c1", "output": '{"temperature": 18, "condition": "cloudy"}'},
        ],
        "tools": [WEATHER],
    },
    "cut by length": {"input": "Who are you?", "max_output_tokens": 4},
    "memory": {
        "input": [
            {"role": "user", "content": "My name is Alice."},
            {"role": "assistant", "content": "Nice to meet you, Alice!"},
            {"role": "user", "content": "What is my name?"},
        ]
    },
    "log probabilities": {"input": "Hello!", "include": ["message.output_text.logprobs"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models: dict[str, Any] = {"llamacpp": {"engine": "llamacpp"}}
    if VLLM:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        models["vllm"] = {
            "engine": "vllm",
            "path": str(SAFETENSORS),
            "max_model_len": 1024,
            "vllm": {"enforce_eager": True, "max_num_seqs": 8},
        }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("golden")) as running:
        yield running


def told(response: dict[str, Any]) -> Any:
    """What a response says, without what is made anew each time; log probabilities to two digits."""
    changing = {"id", "call_id"}

    def strip(value: dict[str, Any]) -> dict[str, Any]:
        return {
            k: round(v, 1) if k == "logprob" else v for k, v in value.items() if k not in changing
        }

    items = json.loads(json.dumps(response["output"]), object_hook=strip)
    return (
        items,
        response["status"],
        response["usage"]["output_tokens"],
        response["usage"]["input_tokens"],
    )


def ask(gateway: RunningGateway, model: str, body: dict[str, Any]) -> Any:
    with httpx.Client(timeout=120) as http:
        url = f"{gateway.base_url}/responses"
        asked = {"model": model, "temperature": 0, **body}
        plain = http.post(url, json=asked)
        assert plain.status_code == 200, plain.text
        streamed = fold(parse_sse(http.post(url, json={**asked, "stream": True}).content))
        assert told(streamed) == told(plain.json())
        return told(plain.json())


@pytest.mark.parametrize("name", REQUESTS)
def test_streamed_and_plain_agree_on_llamacpp(gateway: RunningGateway, name: str) -> None:
    ask(gateway, "llamacpp", REQUESTS[name])


@pytest.fixture(scope="module")
def behind(
    gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway whose models are those of the first, as an upstream."""
    models = {
        api: {
            "engine": "openai",
            "openai": {
                "base_url": gateway.base_url,
                "model": "llamacpp",
                "api": api,
                "extensions": ["chat_template_kwargs"],
            },
        }
        for api in ("chat", "responses")
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("behind")) as running:
        yield running


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("name", REQUESTS)
def test_an_upstream_says_what_llamacpp_says(
    gateway: RunningGateway, behind: RunningGateway, api: str, name: str
) -> None:
    assert ask(behind, api, REQUESTS[name]) == ask(gateway, "llamacpp", REQUESTS[name])


@pytest.mark.vllm
@pytest.mark.skipif(not VLLM, reason="vLLM is not installed here; .ci/run installs its CPU build")
@pytest.mark.parametrize("name", REQUESTS)
def test_vllm_says_what_llamacpp_says(gateway: RunningGateway, name: str) -> None:
    assert ask(gateway, "vllm", REQUESTS[name]) == ask(gateway, "llamacpp", REQUESTS[name])
