"""What every answer of chat and completions has, beside the text: in plain answers and in each chunk."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway_scripted import ScriptedEngine
from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.server import run_gateway
from tests.e2e.engine_prompts import prompt_of

USER = [{"role": "user", "content": "two cities"}]
PLAIN = [{"role": "user", "content": "think first"}]
CHAT = "/v1/chat/completions"
WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}  # fmt: skip


@pytest.mark.parametrize(("path", "asked"), [(CHAT, {"messages": PLAIN}), ("/v1/completions", {"prompt": "a b"})])  # fmt: skip
def test_the_fingerprint_is_that_of_the_model(
    raw: httpx.Client, path: str, asked: dict[str, Any]
) -> None:
    def of(model: str, **more: Any) -> set[str]:
        body = {"model": model, **asked, **more}
        answer = raw.post(path, json=body)
        made = parse_chunks(answer.content) if more else [answer.json()]
        return {each["system_fingerprint"] for each in made}

    [one] = of("scripted")
    assert one.startswith("fp_")
    assert of("scripted", stream=True) == {one}
    assert of("scripted") == {one}
    others = [of(model) for model in ("trusting", "base", "tuned")]
    assert len({one, *(name for names in others for name in names)}) == 4


def test_a_restart_keeps_the_fingerprint(tmp_path_factory: pytest.TempPathFactory) -> None:
    def of(**model: Any) -> Any:
        config = {"models": {"m": {"engine": "scripted", **model}}}
        with (
            run_gateway(config, tmp_path_factory.mktemp("again")) as gateway,
            gateway.client() as client,
        ):
            made = client.chat.completions.create(model="m", messages=USER)
            return made.system_fingerprint

    assert of() == of()
    assert of() != of(sampling={"temperature": 0.5})


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"n": 3},
        {"tools": [WEATHER]},
        {"tools": [WEATHER], "parallel_tool_calls": False},
        {"functions": [WEATHER["function"]]},
        {"logprobs": True, "top_logprobs": 2},
        {"max_tokens": 2},
        {"stop": ["thinking"]},
        {"return_token_ids": True},
        {"include_reasoning": False},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_the_types_of_the_sdk_fit_each_answer_and_chunk(
    raw: httpx.Client, asked: dict[str, Any]
) -> None:
    calls = "tools" in asked or "functions" in asked
    body = {"model": "scripted", "messages": USER if calls else PLAIN, **asked}
    plain = raw.post(CHAT, json=body).json()
    ChatCompletion.model_validate(plain, strict=True)
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = raw.post(CHAT, json={**body, "stream": True, "stream_options": options})
    chunks = parse_chunks(answer.content)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    folded = fold_chunks(chunks, includes_usage=True)
    assert folded["usage"] == plain["usage"]
    assert len(folded["choices"]) == len(plain["choices"])
    for one, other in zip(folded["choices"], plain["choices"], strict=True):
        assert one["finish_reason"] == other["finish_reason"]
        assert (one["message"]["content"] or "") == (other["message"]["content"] or "")
        assert (one["logprobs"] or {}).get("content") == (other["logprobs"] or {}).get("content")


@pytest.mark.parametrize(
    "asked", [{}, {"logprobs": 0}, {"logprobs": 2}, {"n": 2}, {"max_tokens": 1}]
)
def test_the_types_of_the_sdk_fit_completions(raw: httpx.Client, asked: dict[str, Any]) -> None:
    body = {"model": "scripted", "prompt": ["a b", "c"], **asked}
    plain = raw.post("/v1/completions", json=body).json()
    Completion.model_validate(plain, strict=True)
    assert [choice["index"] for choice in plain["choices"]] == [*range(2 * body.get("n", 1))]


def test_special_tokens_are_shown_in_completions_where_they_are_asked_for(
    sdk: OpenAI, engine: ScriptedEngine
) -> None:
    prompt = "<|im_start|>user\nhi"
    for skips, expected in ((True, "user\nhi"), (False, prompt)):
        made = sdk.completions.create(
            model="scripted",
            prompt=engine.tokenizer.encode(prompt),
            echo=True,
            max_tokens=0,
            extra_body={"skip_special_tokens": skips},
        )
        assert made.choices[0].text == expected
        assert engine.requests[-1].sampling.skip_special_tokens is skips


def test_what_is_sent_back_is_the_conversation(sdk: OpenAI, engine: ScriptedEngine) -> None:
    """Reasoning under either name, refusals, results in parts, late instructions: each in its place in the prompt."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages: list[Any] = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]},
        {"role": "user", "content": [{"type": "text", "text": "two"}]},
        {"role": "assistant", "content": "", "reasoning": "because", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2"}]},
        {"role": "developer", "content": "be brief"},
    ]  # fmt: skip
    sdk.chat.completions.create(model="scripted", messages=messages)
    prompt = prompt_of(engine)
    told = ["one", "never", "two", "because", '{"name": "f", "arguments": {"a": 1}}', "p1", "p2"]
    places = [prompt.index(each) for each in told]
    assert places == sorted(places)
    assert "be brief" in prompt


@pytest.mark.parametrize(
    "asked",
    [
        {"modalities": ["text"]},
        {"prediction": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
        {"verbosity": "high"},
        {"service_tier": "flex"},
        {"prompt_cache_key": "k", "prompt_cache_retention": "24h"},
        {"safety_identifier": "s", "user": "u"},
        {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
        {"stream_options": None, "response_format": None, "stop": None, "audio": None},
        {"max_tokens": 10, "max_completion_tokens": 20},
        {"frobnicate": {"deep": [1]}},
    ],
)
def test_what_changes_no_answer_is_accepted(raw: httpx.Client, asked: dict[str, Any]) -> None:
    body = {"model": "scripted", "messages": [{"role": "user", "content": "hello"}], **asked}
    answer = raw.post(CHAT, json=body).json()
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert answer["service_tier"] == asked.get("service_tier", "default")


def test_tokens_that_are_parts_of_characters_are_scored_by_their_bytes(raw: httpx.Client) -> None:
    text = "Zürich 東京 🙂"
    body = {"model": "scripted", "messages": [{"role": "user", "content": text}], "logprobs": True}
    [choice] = raw.post(CHAT, json=body).json()["choices"]
    told = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"])
    assert told.decode() == choice["message"]["content"] == text
