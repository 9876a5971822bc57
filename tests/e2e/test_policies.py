"""Policies in all APIs: prompts are changed, refused or routed, and output is filtered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from gateway import hookimpl
from gateway.base.deltas import Delta, TextDelta
from gateway.plugins.hookspecs import OpenPolicy, Register
from gateway.plugins.protocols import Ending, NoConfig, PolicyRefusal, PolicyRequest
from gateway.sdk.policies import texts_of
from gateway.wire.content import InputText
from gateway.wire.items import Message
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway
from tests.e2e.engine_prompts import prompts

CARD = "4111 1111 1111 1111"
SCENARIO = [
    {"when": "tell", "pieces": [{"reasoning": f"it is {CARD}."}, {"text": f"It is {CARD}, I think."}]},
    {"when": "forbidden", "pieces": [{"text": "one two STOP three"}], "repeat": 50},
]  # fmt: skip
EXAMPLE = [
    {"role": "user", "content": "An example."},
    {"role": "assistant", "content": "Its answer."},
]
PATHS = ("/responses", "/chat/completions", "/completions", "/messages")


class Stopper:
    """Ends the output at the word STOP."""

    def __init__(self) -> None:
        self.ended: Ending | None = None
        self._seen = ""

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        for index, delta in enumerate(deltas):
            if isinstance(delta, TextDelta):
                self._seen += delta.text
                if "STOP" in self._seen:
                    self.ended = "content_filter"
                    return deltas[:index]
        return deltas

    def finish(self) -> Sequence[Delta]:
        return ()


class Guard:
    """Refuses, routes and ends by words in the request."""

    def __init__(self) -> None:
        self.asked: list[PolicyRequest] = []

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        self.asked.append(request)
        texts = [*request.texts, *(() if request.turn is None else texts_of(request.turn))]
        if any("refuse me" in text for text in texts):
            return PolicyRefusal("I must not.")
        if any("route me" in text for text in texts):
            return replace(request, model="other")
        if request.turn is not None and any("rules first" in text for text in texts):
            rule = Message(role="developer", content=[InputText(text="A rule.")])
            turn = replace(request.turn, items=[rule, rule, *request.turn.items])
            return replace(request, turn=turn)
        if any("circle" in text for text in texts):
            return replace(request, model="other" if request.model == "first" else "first")
        return request

    def output(self, request: PolicyRequest) -> Stopper:
        return Stopper()


@asynccontextmanager
async def open_guard(config: NoConfig) -> AsyncIterator[Guard]:
    yield Guard()


@hookimpl
def gateway_register_policies(register: Register[OpenPolicy]) -> None:
    register("guard", open_guard)


def plugin() -> ModuleType:
    module = ModuleType("gateway_guard")
    vars(module)["gateway_register_policies"] = gateway_register_policies
    return module


@pytest.fixture
def gateway(gateway_server: StartGateway, tmp_path: Path) -> RunningGateway:
    (tmp_path / "scenario.json").write_text(json.dumps(SCENARIO))
    model = {"engine": "scripted", "path": "scenario.json"}
    config = {
        "models": {"first": model, "other": model, "small": {**model, "max_model_len": 200}},
        "prompts": {"shop": {"text": "Help.", "messages": EXAMPLE}},
        "policies": {"redact": {"patterns": [r"\d{4}(?: ?\d{4}){3}"]}, "guard": {}},
    }
    return gateway_server(config, plugins=[plugin()], folder=tmp_path)


def post(gateway: RunningGateway, path: str, text: str, **more: Any) -> httpx.Response:
    body: dict[str, Any] = {"model": "first", **more}
    match path:
        case "/responses":
            body["input"] = text
        case "/completions":
            body |= {"prompt": text, "max_tokens": 500}
        case "/messages":
            body |= {"messages": [{"role": "user", "content": text}], "max_tokens": 500}
        case "/embeddings":
            body["input"] = text
        case _:
            body["messages"] = [{"role": "user", "content": text}]
    return httpx.post(f"{gateway.base_url}{path}", json=body, timeout=60)


def test_a_shortened_conversation_keeps_its_prompts_example_after_items_of_a_policy(
    gateway: RunningGateway,
) -> None:
    turns = [{"role": "user", "content": f"question {n}, rules first"} for n in range(20)]
    answers = [{"role": "assistant", "content": f"answer {n}"} for n in range(20)]
    sent = [item for pair in zip(turns, answers, strict=True) for item in pair] + turns[:1]
    body = {"model": "small", "input": sent, "prompt": {"id": "shop"}, "truncation": "auto"}
    answer = httpx.post(f"{gateway.base_url}/responses", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    [prompt] = prompts(gateway, "small")
    assert "An example." in prompt
    assert prompt.count("A rule.") == 2
    assert "question 1," not in prompt


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_prompts_and_output_are_redacted(gateway: RunningGateway, path: str, stream: bool) -> None:
    answer = post(gateway, path, f"tell me, {CARD}", stream=stream)
    assert answer.status_code == 200, answer.text
    [prompt] = prompts(gateway, "first")
    assert "[redacted]" in prompt
    assert "4111" not in prompt
    assert "4111 " not in answer.text  # the digits alone may be in an id
    if path == "/responses":
        final = fold(parse_sse(answer.content)) if stream else answer.json()
        assert [item["type"] for item in final["output"]] == ["reasoning", "message"]
        assert final["output"][1]["content"][0]["text"] == "It is [redacted], I think."
        stored = httpx.get(f"{gateway.base_url}/responses/{final['id']}").json()
        assert stored["output"] == final["output"]


def test_token_ids_are_no_way_around(gateway: RunningGateway) -> None:
    engine: Any = gateway.services.models["first"].engine
    ids = engine.tokenizer.encode(f"tell me, {CARD}", add_special_tokens=False)
    answer = httpx.post(
        f"{gateway.base_url}/completions",
        json={"model": "first", "prompt": list(ids), "max_tokens": 50},
    )
    assert answer.status_code == 200
    assert "4111" not in prompts(gateway, "first")[0] + answer.text


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/chat/completions", {"logprobs": True}),
        ("/chat/completions", {"return_token_ids": True}),
        ("/completions", {"logprobs": 1}),
        ("/completions", {"return_token_ids": True}),
        ("/responses", {"include": ["message.output_text.logprobs"]}),
    ],
)
def test_tokens_are_not_shown_beside_filtered_output(
    gateway: RunningGateway, path: str, more: dict[str, Any]
) -> None:
    answer = post(gateway, path, "tell", **more)
    assert answer.status_code == 400
    assert "filtered" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_looks_as_openai_s_does(gateway: RunningGateway, stream: bool) -> None:
    response = post(gateway, "/responses", "refuse me", stream=stream)
    final = fold(parse_sse(response.content)) if stream else response.json()
    assert final["output"][0]["content"] == [{"type": "refusal", "refusal": "I must not."}]
    assert final["status"] == "incomplete"
    assert final["incomplete_details"] == {"reason": "content_filter"}
    chat = post(gateway, "/chat/completions", "refuse me", stream=stream)
    if stream:
        chunks = [json.loads(line[6:]) for line in chat.text.splitlines() if line.startswith("data: {")]  # fmt: skip
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        assert "".join(each["delta"].get("refusal") or "" for each in choices) == "I must not."
        assert choices[-1]["finish_reason"] == "content_filter"
    else:
        [choice] = chat.json()["choices"]
        assert choice["message"]["refusal"] == "I must not."
        assert not choice["message"]["content"]
        assert choice["finish_reason"] == "content_filter"
    raw = post(gateway, "/completions", "refuse me", stream=stream)
    if not stream:
        [choice] = raw.json()["choices"]
        assert (choice["text"], choice["finish_reason"]) == ("", "content_filter")
        assert post(gateway, "/messages", "refuse me").json()["stop_reason"] == "refusal"
    embedded = post(gateway, "/embeddings", "refuse me")
    assert embedded.status_code == 400
    assert embedded.json()["error"]["code"] == "content_filter"
    assert prompts(gateway, "first") == []


@pytest.mark.parametrize("path", [*PATHS, "/embeddings"])
def test_a_policy_routes(gateway: RunningGateway, path: str) -> None:
    answer = post(gateway, path, "route me")
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "other"
    assert prompts(gateway, "first") == []


@pytest.mark.parametrize("path", PATHS)
def test_a_circle_of_policies_ends_with_an_error(gateway: RunningGateway, path: str) -> None:
    answer = post(gateway, path, "circle")
    assert answer.status_code == 500
    assert "circle" in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_filter_ends_the_output_and_the_engine(gateway: RunningGateway, path: str) -> None:
    answer = post(gateway, path, "forbidden", stream=True)
    assert "three" not in answer.text
    assert "content_filter" in answer.text or "refusal" in answer.text
    engine: Any = gateway.services.models["first"].engine
    assert not engine.running
    assert len(engine.aborted) == 1


def test_the_results_of_tools_are_checked_too(gateway_server: StartGateway, tmp_path: Path) -> None:
    (tmp_path / "scenario.json").write_text(json.dumps([{"when": "", "pieces": [{"text": "ok"}]}]))
    model = {"engine": "scripted", "path": "scenario.json"}
    config = {"models": {"first": model}, "policies": {"redact": {"patterns": [r"\d{4}"]}}}
    gateway = gateway_server(config, folder=tmp_path)
    sent: list[dict[str, Any]] = [
        {"role": "user", "content": "look it up"},
        {"type": "function_call", "call_id": "1", "name": "find", "arguments": '{"pin": "1234"}'},
        {"type": "function_call_output", "call_id": "1", "output": "it is 5678"},
    ]
    body = {
        "model": "first",
        "input": sent,
        "instructions": "never say 9876",
        "tools": [{"type": "function", "name": "find", "description": "finds 4321"}],
    }
    answer = httpx.post(f"{gateway.base_url}/responses", json=body)
    assert answer.status_code == 200
    [prompt] = prompts(gateway, "first")
    assert not any(secret in prompt for secret in ("1234", "5678", "9876", "4321"))
