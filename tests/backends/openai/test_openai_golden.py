"""The same script, directly and through an upstream by either API: the same items, text, calls, scores and usage."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.grammar import fold, parse_sse

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Get the weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "sure": {"type": "boolean"}},
    "required": ["colour", "sure"],
    "additionalProperties": False,
}
RESPONSE_TOOL = {"type": "function", **WEATHER}
FORMAT = {"format": {"type": "json_schema", "name": "choice", "schema": SCHEMA, "strict": True}}
NOTE = {"type": "custom", "name": "note", "description": "Write it down."}

RESPONSES: dict[str, dict[str, Any]] = {
    "echo": {"input": "Repeat this."},
    "instructions": {"input": "Repeat this.", "instructions": "Say unicode please."},
    "reasoning": {"input": "think first", "reasoning": {"effort": "low"}},
    "reasoning and a call": {"input": "weather in Paris", "tools": [RESPONSE_TOOL]},
    "two calls": {"input": "two cities", "tools": [RESPONSE_TOOL]},
    "one call at most": {
        "input": "two cities",
        "tools": [RESPONSE_TOOL],
        "parallel_tool_calls": False,
    },
    "a call without arguments": {"input": "nothing to say", "tools": [RESPONSE_TOOL]},
    "half a call": {"input": "half a call", "tools": [RESPONSE_TOOL]},
    "a forced call": {"input": "Hi", "tools": [RESPONSE_TOOL], "tool_choice": "required"},
    "a named call": {
        "input": "Hi",
        "tools": [RESPONSE_TOOL, {"type": "function", "name": "other"}],
        "tool_choice": {"type": "function", "name": "get_weather"},
    },
    "a result": {
        "input": [
            {"role": "user", "content": "weather in Paris"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "18 degrees"},
        ],
        "tools": [RESPONSE_TOOL],
    },
    "a free-text tool": {"input": "free text tool", "tools": [NOTE]},
    "a free-text tool's result": {
        "input": [
            {"role": "user", "content": "free text tool"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "note", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "18 degrees"},
        ],
        "tools": [NOTE],
    },
    "a schema": {"input": "Choose.", "text": FORMAT},
    "any object": {"input": "Choose.", "text": {"format": {"type": "json_object"}}},
    "log probabilities": {
        "input": "think first",
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 3,
    },
    "log probabilities of characters in pieces": {
        "input": "unicode please",
        "include": ["message.output_text.logprobs"],
    },
    "a limit": {"input": "go slowly", "max_output_tokens": 3},
    "a filter": {"input": "filtered"},
    "a stop string": {"input": "say one two three", "stop": ["two"]},
    "sampling": {
        "input": "Repeat this.",
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "logit_bias": {"5": 1},
    },
    "a tool of the gateway": {"input": "measure it"},
}  # fmt: skip

CHATS: dict[str, dict[str, Any]] = {
    "echo": {"messages": [{"role": "user", "content": "Repeat this."}]},
    "roles": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Repeat"}, {"type": "text", "text": "this."}]},
            {"role": "assistant", "content": "What?", "reasoning_content": "Odd."},
            {"role": "user", "content": "unicode please"},
        ]
    },
    "reasoning": {"messages": [{"role": "user", "content": "think first"}]},
    "calls": {
        "messages": [{"role": "user", "content": "two cities"}],
        "tools": [{"type": "function", "function": WEATHER}],
    },
    "results": {
        "messages": [
            {"role": "user", "content": "two cities"},
            {"role": "assistant", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "3 degrees"},
            {"role": "tool", "tool_call_id": "b", "content": "18 degrees"},
        ],
        "tools": [{"type": "function", "function": WEATHER}],
    },
    "log probabilities": {
        "messages": [{"role": "user", "content": "think first"}],
        "logprobs": True,
        "top_logprobs": 2,
    },
    "three choices": {"messages": [{"role": "user", "content": "think first"}], "n": 3, "seed": 1},
    "a limit": {"messages": [{"role": "user", "content": "go slowly"}], "max_completion_tokens": 2},
}  # fmt: skip

STRUCTURES: dict[str, Any] = {
    "a pattern": {"regex": "(yes|no)!"},
    "one of": {"choice": ["red", "blue"]},
    "a schema": {"json": SCHEMA},
    "any object": {"json_object": True},
}
CHANGING = {"id", "call_id", "created", "created_at", "completed_at", "model", "system_fingerprint"}


def steady(value: Any) -> Any:
    """Without what is made anew each time."""
    return json.loads(
        json.dumps(value),
        object_hook=lambda d: {k: v for k, v in d.items() if k not in CHANGING},
    )


def post(pair: Any, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = httpx.post(f"{pair.front.base_url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def respond(pair: Any, model: str, body: dict[str, Any]) -> Any:
    asked = {"model": model, "store": False, **body}
    plain = steady(post(pair, "/responses", asked).json())
    events = parse_sse(post(pair, "/responses", {**asked, "stream": True}).content)
    assert steady(fold(events)) == plain
    return plain


@pytest.mark.parametrize("model", ["chat", "responses"])
@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_the_same_as_directly(pair: Any, model: str, name: str) -> None:
    body = RESPONSES[name]
    assert respond(pair, model, body) == respond(pair, "direct", body)


@pytest.mark.parametrize("model", ["chat", "responses"])
@pytest.mark.parametrize("name", CHATS)
def test_a_chat_completion_is_the_same_as_directly(pair: Any, model: str, name: str) -> None:
    def ask(model: str) -> tuple[Any, Any]:
        asked = {"model": model, **CHATS[name]}
        plain = post(pair, "/chat/completions", asked).json()
        told = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = parse_chunks(post(pair, "/chat/completions", {**asked, **told}).content)
        streamed = fold_chunks(chunks, includes_usage=True)
        assert streamed["usage"] == plain["usage"]
        return steady(plain), steady(streamed)

    assert ask(model) == ask("direct")


@pytest.mark.parametrize("model", ["chat", "responses"])
@pytest.mark.parametrize("name", [*RESPONSES, *(f"chat: {name}" for name in CHATS)])
def test_the_upstreams_engine_is_asked_the_same_as_directly(
    pair: Any, model: str, name: str
) -> None:
    """Prompt, sampling, and what is enforced."""

    def asked(model: str, engine: Any) -> Any:
        engine.requests.clear()
        if name.startswith("chat: "):
            post(pair, "/chat/completions", {"model": model, **CHATS[name[6:]]})
        else:
            post(pair, "/responses", {"model": model, "store": False, **RESPONSES[name]})
        told = [
            (bytes_of(engine, request), request.sampling, request.constraint)
            for request in engine.requests
        ]
        return sorted(told, key=repr)

    direct = pair.front.services.models["direct"].engine
    assert asked(model, pair.engine) == asked("direct", direct)


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_beyond_text_formats_reach_the_upstreams_engine(pair: Any, name: str) -> None:
    said = [{"role": "user", "content": "Choose."}]
    asked = {"messages": said, "structured_outputs": STRUCTURES[name]}
    post(pair, "/chat/completions", {"model": "chat", **asked})
    post(pair, "/chat/completions", {"model": "direct", **asked})
    told = pair.engine.requests[-1].constraint
    assert told is not None
    assert told == pair.front.services.models["direct"].engine.requests[-1].constraint


def bytes_of(engine: Any, request: Any) -> str:
    return str(engine.tokenizer.decode(request.prompt.token_ids))


def test_a_free_text_tool_of_chat_is_told_as_one_where_the_upstream_knows_them(pair: Any) -> None:
    body = RESPONSES["a free-text tool"]
    assert respond(pair, "chat-custom", body)["output"] == respond(pair, "direct", body)["output"]
