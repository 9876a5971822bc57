"""The same request to the same model gives the same items, whichever engine runs it; events differ only in their cuts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import Struct

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

TEMPLATE = Path(__file__).parents[1] / "models" / "tiny-qwen3" / "chat_template.jinja"
CHUNKS = (None, 1, 7)
"""Characters at once that the scripted engine says; None: a token at once."""
# torch and vLLM warn of themselves as they are imported, in the gateway's thread.
pytestmark = pytest.mark.filterwarnings("default")
ENGINES = [
    "llama-server",
    "upstream-chat",
    "upstream-responses",
    *(
        pytest.param(name, marks=pytest.mark.vllm)
        for name in ("vllm in process", "vllm-generate", "vllm")
    ),
]

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


class ItemView(Struct, frozen=True):
    """What an answer says, without what is made anew each time."""

    items: list[Any]
    events: list[Any]
    """Those of the stream, with what is cut at will put together."""
    logprobs: list[float]
    """Of the streamed answer, in their order."""
    status: str
    output_tokens: int
    input_tokens: int


MADE_ANEW = {"id", "item_id", "call_id", "sequence_number", "obfuscation", "response"}


def lasting(value: Any, logprobs: list[float] | None = None) -> Any:
    """`value` without what is made anew each time and without log probabilities, which go into `logprobs`."""

    def strip(found: dict[str, Any]) -> dict[str, Any]:
        if logprobs is not None and "logprob" in found:
            logprobs.append(found["logprob"])
        return {k: v for k, v in found.items() if k not in MADE_ANEW and k != "logprob"}

    return json.loads(json.dumps(value), object_hook=strip)


def uncut(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, with deltas that follow one another put together."""
    whole: list[dict[str, Any]] = []
    for event in lasting(events):
        if whole and "delta" in event and whole[-1]["type"] == event["type"]:
            last = whole[-1]
            assert last["output_index"] == event["output_index"]
            last["delta"] += event["delta"]
            if "logprobs" in event:
                last["logprobs"] += event["logprobs"]
        else:
            whole.append(event)
    return whole


def ask(gateway: RunningGateway, model: str, body: dict[str, Any]) -> ItemView:
    """The answer, streamed; it is asked for without a stream too, and must be the same."""
    with httpx.Client(timeout=120) as http:
        url = f"{gateway.base_url}/responses"
        asked = {"model": model, "temperature": 0, **body}
        answer = http.post(url, json=asked)
        assert answer.status_code == 200, answer.text
        plain = answer.json()
        events = parse_sse(http.post(url, json={**asked, "stream": True}).content)
    streamed = fold(events)
    logprobs: list[float] = []
    told = ItemView(
        items=lasting(streamed["output"], logprobs),
        events=uncut(events),
        logprobs=logprobs,
        status=streamed["status"],
        output_tokens=streamed["usage"]["output_tokens"],
        input_tokens=streamed["usage"]["input_tokens"],
    )
    assert told.items == lasting(plain["output"])
    assert told.status == plain["status"]
    assert told.output_tokens == plain["usage"]["output_tokens"]
    return told


Find = Callable[[str], RunningGateway]


@pytest.fixture(scope="session")
def on_llamacpp(in_process: RunningGateway) -> Callable[[str], ItemView]:
    """What llama.cpp in process answers to a request, asked for once."""
    known: dict[str, ItemView] = {}

    def answer(name: str) -> ItemView:
        if name not in known:
            known[name] = ask(in_process, "llamacpp", REQUESTS[name])
        return known[name]

    return answer


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", REQUESTS)
def test_every_engine_says_what_llamacpp_says(
    gateway_of: Find, on_llamacpp: Callable[[str], ItemView], engine: str, name: str
) -> None:
    gateway = gateway_of(engine)
    expected = on_llamacpp(name)
    told = ask(gateway, engine.split()[0], REQUESTS[name])
    assert told.items == expected.items
    assert told.events == expected.events
    # The kinds of arithmetic differ a little: half precision here, single there.
    assert told.logprobs == pytest.approx(expected.logprobs, abs=0.05)
    assert told.status == expected.status
    assert (told.output_tokens, told.input_tokens) == (
        expected.output_tokens,
        expected.input_tokens,
    )


def test_the_requests_bring_out_all_that_is_compared(
    on_llamacpp: Callable[[str], ItemView],
) -> None:
    """Were the tiny model to answer all of them with a plain text, the comparison would say little."""
    answers = {name: on_llamacpp(name) for name in REQUESTS}
    assert {item["type"] for told in answers.values() for item in told.items} == {
        "message",
        "reasoning",
        "function_call",
    }
    assert {told.status for told in answers.values()} == {"completed", "incomplete"}
    assert answers["log probabilities"].logprobs


def test_what_is_cut_otherwise_comes_to_the_same(
    in_process: RunningGateway, tape: Any, tmp_path: Path
) -> None:
    """The scripted engine says word for word what llama.cpp has said, in tokens of its own and in several cuts."""
    expected: dict[str, ItemView] = {}
    models: dict[str, Any] = {}
    for name, body in REQUESTS.items():
        if name == "log probabilities":
            continue  # it makes them up
        expected[name] = ask(in_process, "taped", body)
        for chunk in CHUNKS:
            models[f"{name}/{chunk}"] = {
                "engine": "scripted",
                "chat_template": str(TEMPLATE),
                "scripted": {
                    "rules": [{**tape.rule, "chunk": chunk}],
                    "architecture": "Qwen3ForCausalLM",
                    "special_tokens": ["<tool_call>", "</tool_call>", "<think>", "</think>"],
                },
            }
    with run_gateway({"models": models}, tmp_path) as gateway:
        for model in models:
            name = model.partition("/")[0]
            # Its tokens are others, so a limit would cut elsewhere: what was cut is said as it was cut.
            body = {k: v for k, v in REQUESTS[name].items() if k != "max_output_tokens"}
            told = ask(gateway, model, body)
            assert (told.items, told.events) == (expected[name].items, expected[name].events)
            assert told.status == expected[name].status
