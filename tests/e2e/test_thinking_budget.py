"""A budget of reasoning tokens ends the reasoning, in each format, and the answer goes on as if the model had ended it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_scripted import ScriptedEngine
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

THOUGHT = " ".join(["one two three four five six seven eight nine ten"] * 6)
FORMATS = {"qwen3": "</think>", "harmony": "<|channel|>final<|message|>"}


def rules(marker: str, chunk: int | None) -> list[dict[str, Any]]:
    return [
        {"when": "puzzle", "pieces": [{"reasoning": THOUGHT}, {"text": "slow"}]}
        | ({} if chunk is None else {"chunk": chunk}),
        {"when": "plain", "pieces": [{"text": THOUGHT}]},
        {"when": marker, "pieces": [{"text": "fast"}]},
    ]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models: dict[str, Any] = {}
    for name, marker in FORMATS.items():
        for chunk in (None, 5):
            models[f"{name}-{chunk}"] = {
                "engine": "scripted",
                "parser": name,
                **({"renderer": "harmony"} if name == "harmony" else {}),
                "scripted": {"rules": rules(marker, chunk)},
            }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("budget")) as running:
        yield running


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


def chat(http: httpx.Client, model: str, said: str = "puzzle", **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": said}], **fields}
    answer = http.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def message(answer: dict[str, Any]) -> tuple[str, str]:
    shown = answer["choices"][0]["message"]
    return shown.get("reasoning_content") or "", shown["content"] or ""


MODELS = [f"{name}-{chunk}" for name in FORMATS for chunk in (None, 5)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["thinking_token_budget", "thinking_budget_tokens"])
def test_the_reasoning_ends_and_the_answer_goes_on(
    gateway: RunningGateway, http: httpx.Client, model: str, name: str
) -> None:
    whole = chat(http, model)
    assert message(whole) == (THOUGHT, "slow")
    for budget in (3, 4, 5):
        cut = chat(http, model, "puzzle", **{name: budget})
        reasoning, text = message(cut)
        assert THOUGHT.startswith(reasoning)
        assert 0 < len(reasoning) < len(THOUGHT)
        assert text == "fast"
        assert cut["choices"][0]["finish_reason"] == "stop"
        usage = cut["usage"]
        assert usage["prompt_tokens"] == whole["usage"]["prompt_tokens"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] >= budget
        assert usage["completion_tokens"] <= whole["usage"]["completion_tokens"]
        engine = gateway.services.models[model].engine
        assert isinstance(engine, ScriptedEngine)
        assert not engine.running


@pytest.mark.parametrize("model", MODELS)
def test_a_budget_that_is_not_used_up_changes_nothing(http: httpx.Client, model: str) -> None:
    assert message(chat(http, model, thinking_token_budget=1000)) == (THOUGHT, "slow")
    assert message(chat(http, model, thinking_budget_tokens=-1)) == (THOUGHT, "slow")
    for budget in (0, 3):
        assert message(chat(http, model, "plain", thinking_token_budget=budget)) == ("", THOUGHT)


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_is_what_the_plain_answer_is(http: httpx.Client, model: str) -> None:
    body = {"model": model, "input": "puzzle", "thinking_token_budget": 3, "stream": True}
    streamed = http.post("/responses", json=body)
    folded = fold(parse_sse(streamed.content))
    plain = http.post("/responses", json={**body, "stream": False}).json()
    for response in (folded, plain):
        assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
        assert response["output"][1]["content"][0]["text"] == "fast"
        assert response["status"] == "completed"
    assert folded["usage"] == plain["usage"]
    assert plain["output"][0]["content"][0]["text"] == folded["output"][0]["content"][0]["text"]


def test_a_limit_that_the_end_of_the_reasoning_uses_up_is_a_length(http: httpx.Client) -> None:
    cut = chat(http, "qwen3-None", thinking_token_budget=3, max_tokens=5)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert message(cut)[1] == ""


def test_log_probabilities_stay_with_the_text(http: httpx.Client) -> None:
    cut = chat(http, "qwen3-None", thinking_token_budget=3, logprobs=True)
    tokens = cut["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == "fast"


def test_each_choice_has_its_budget(http: httpx.Client) -> None:
    cut = chat(http, "qwen3-None", thinking_token_budget=3, n=3)
    assert [choice["message"]["content"] for choice in cut["choices"]] == ["fast"] * 3


def test_messages_keep_their_budget(http: httpx.Client) -> None:
    body: dict[str, Any] = {
        "model": "qwen3-None",
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": "puzzle"}],
    }
    kept = http.post("/messages", json={**body, "thinking": {"type": "enabled", "budget_tokens": 1024}})  # fmt: skip
    assert [block["type"] for block in kept.json()["content"]] == ["thinking", "text"]
    assert kept.json()["content"][1]["text"] == "slow"
    cut = http.post("/messages", json={**body, "thinking_token_budget": 3}).json()
    assert cut["content"][1]["text"] == "fast"
    assert json.dumps(cut).count("think>") == 0


def test_raw_completions_have_no_reasoning_to_limit(http: httpx.Client) -> None:
    body = {"model": "qwen3-None", "prompt": "x", "thinking_token_budget": 3}
    answer = http.post("/completions", json=body)
    assert answer.json()["error"]["param"] == "thinking_token_budget"


def test_an_upstream_ends_the_reasoning_itself(
    gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def behind(*extensions: str) -> dict[str, Any]:
        upstream = {
            "base_url": gateway.base_url,
            "model": MODELS[0],
            "extensions": list(extensions),
        }
        return {"engine": "openai", "openai": upstream}

    names = ("thinking_token_budget", "thinking_budget_tokens")
    models = {"plain": behind(), **{name: behind(name) for name in names}}
    with (
        run_gateway({"models": models}, tmp_path_factory.mktemp("front")) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as http,
    ):
        for name in names:
            assert message(chat(http, name)) == (THOUGHT, "slow")
            cut = chat(http, name, thinking_token_budget=4)
            reasoning, text = message(cut)
            assert text == "fast"
            assert THOUGHT.startswith(reasoning)
            assert cut["usage"]["completion_tokens_details"]["reasoning_tokens"] < 10
            body = {"model": "plain", "messages": [{"role": "user", "content": "puzzle"}]}
            refused = http.post("/chat/completions", json={**body, name: 4})
            assert refused.json()["error"]["param"] == name
        said = {"max_tokens": 50, "thinking_token_budget": 4}
        blocks = http.post("/messages", json={**body, **said, "model": names[0]}).json()["content"]
        assert blocks[-1]["text"] == "fast"
