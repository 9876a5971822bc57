"""/v1/completions, /tokenize and /detokenize."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway_scripted import ScriptedEngine
from gateway_testing.chat_grammar import parse_chunks

Json = dict[str, Any]


def complete(raw: httpx.Client, **body: Any) -> Json:
    answer = raw.post("/v1/completions", json={"model": "scripted", **body})
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def streamed(raw: httpx.Client, **body: Any) -> dict[int, Json]:
    """The choices of a stream, checked and folded."""
    answer = raw.post("/v1/completions", json={"model": "scripted", "stream": True, **body})
    assert answer.status_code == 200
    folded: dict[int, Json] = {}
    for chunk in parse_chunks(answer.content):
        assert chunk["object"] == "text_completion"
        for part in chunk["choices"]:
            whole = folded.setdefault(
                part["index"], {"text": "", "finish_reason": None, "tokens": []}
            )
            assert whole["finish_reason"] is None
            whole["text"] += part["text"]
            whole["tokens"] += (part["logprobs"] or {}).get("tokens", [])
            whole["finish_reason"] = part["finish_reason"]
    return folded


def test_a_text_and_its_tokens_are_the_same_prompt(sdk: OpenAI, engine: ScriptedEngine) -> None:
    made = sdk.completions.create(model="scripted", prompt="hello there")
    assert made.id.startswith("cmpl-")
    assert (made.object, made.choices[0].text) == ("text_completion", "hello there")
    tokens = engine.tokenizer.encode("hello there")
    again = sdk.completions.create(model="scripted", prompt=tokens)
    assert again.choices[0].text == "hello there"
    assert made.usage == again.usage


@pytest.mark.parametrize("kind", ["texts", "tokens"])
def test_several_prompts_times_n(sdk: OpenAI, engine: ScriptedEngine, kind: str) -> None:
    texts = ["one", "two words"]
    prompts: Any = texts if kind == "texts" else [engine.tokenizer.encode(t) for t in texts]
    made = sdk.completions.create(model="scripted", prompt=prompts, n=2)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in made.choices] == ["one", "one", "two words", "two words"]
    assert made.usage is not None
    assert made.usage.prompt_tokens == sum(len(engine.tokenizer.encode(t)) for t in texts)


def test_a_stream_adds_up_to_the_plain_answer(raw: httpx.Client) -> None:
    body: Json = {"prompt": ["one", "two words"], "n": 2, "logprobs": 1, "echo": True}
    plain = complete(raw, **body)
    folded = streamed(raw, **body)
    for choice in plain["choices"]:
        other = folded[choice["index"]]
        assert other["text"] == choice["text"]
        assert other["tokens"] == choice["logprobs"]["tokens"]
        assert other["finish_reason"] == choice["finish_reason"]


def test_usage_is_streamed_where_it_is_asked_for(sdk: OpenAI) -> None:
    chunks = list(
        sdk.completions.create(
            model="scripted", prompt="hi", stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("limit", [0, 1, 9])
def test_usage_so_far_comes_to_the_usage(raw: httpx.Client, limit: int) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body: Json = {"model": "scripted", "prompt": "one two", "max_tokens": limit, "stream": True}
    answer = raw.post("/v1/completions", json={**body, "stream_options": options})
    told = [chunk["usage"] for chunk in parse_chunks(answer.content)]
    counts = [usage["completion_tokens"] for usage in told]
    assert counts == sorted(counts)
    assert told[-2] == told[-1]
    assert counts[-1] <= limit


def test_sixteen_tokens_are_the_default(raw: httpx.Client) -> None:
    made = complete(raw, prompt="a b c d e f g h i j k l m n o p q r s t u v w x y z")
    assert made["usage"]["completion_tokens"] == 16
    assert made["choices"][0]["finish_reason"] == "length"


def test_a_stop_ends_the_text(raw: httpx.Client) -> None:
    [choice] = complete(raw, prompt="one two three", stop="two")["choices"]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        "one ",
        "stop",
        "two",
    )


def test_each_output_token_has_its_log_probability(raw: httpx.Client) -> None:
    """So has one that ends the output and is not in the text: trainers pair these lists."""
    body: Json = {"prompt": "hello there", "logprobs": 1, "return_token_ids": True}
    made = complete(raw, **body)
    [choice] = made["choices"]
    assert len(choice["logprobs"]["tokens"]) == len(choice["token_ids"])
    assert len(choice["token_ids"]) == made["usage"]["completion_tokens"]
    assert len(set(map(len, choice["logprobs"].values()))) == 1
    assert streamed(raw, **body)[0]["tokens"] == choice["logprobs"]["tokens"]


def test_a_text_is_echoed_as_it_was_sent(raw: httpx.Client) -> None:
    text = "<|im_start|>user\nhello there<|im_end|>"
    [choice] = complete(raw, prompt=text, echo=True)["choices"]
    assert choice["text"].startswith(text)
    [cut] = complete(raw, prompt=text, echo=True, truncate_prompt_tokens=1)["choices"]
    assert "user" not in cut["text"]


@pytest.mark.parametrize("text", ["hello there", "Zürich 東京 🙂"])
def test_logprobs_line_up_with_an_echoed_prompt(raw: httpx.Client, text: str) -> None:
    [choice] = complete(raw, prompt=text, echo=True, logprobs=2)["choices"]
    assert choice["text"] == text + text
    scored = choice["logprobs"]
    assert scored["token_logprobs"][0] is None
    assert scored["top_logprobs"][0] is None
    assert all(math.isfinite(score) and score < 0 for score in scored["token_logprobs"][1:])
    assert all(len(best) >= 2 for best in scored["top_logprobs"][1:])
    assert len(set(map(len, scored.values()))) == 1
    offsets = scored["text_offset"]
    assert offsets == sorted(offsets)
    for offset, token in zip(offsets, scored["tokens"], strict=True):
        if "\N{REPLACEMENT CHARACTER}" not in token:
            assert choice["text"][offset : offset + len(token)] == token


def test_a_prompt_is_scored_without_writing_anything(raw: httpx.Client) -> None:
    """What evaluation harnesses ask."""
    made = complete(raw, prompt="hello there", echo=True, logprobs=1, max_tokens=0)
    [choice] = made["choices"]
    assert choice["text"] == "hello there"
    assert "".join(choice["logprobs"]["tokens"]) == "hello there"
    assert (choice["finish_reason"], made["usage"]["completion_tokens"]) == ("length", 0)


def test_tokens_and_the_prompts_scores_are_shown_where_they_are_asked_for(
    raw: httpx.Client, engine: ScriptedEngine
) -> None:
    [choice] = complete(raw, prompt="hello", return_token_ids=True, prompt_logprobs=1)["choices"]
    assert choice["prompt_token_ids"] == engine.tokenizer.encode("hello")
    assert engine.tokenizer.decode(choice["token_ids"]) == "hello"
    assert len(choice["prompt_logprobs"]) == len(choice["prompt_token_ids"])


def test_a_structure_is_enforced_from_the_first_token(raw: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    assert complete(raw, prompt="x", guided_json=schema)["choices"][0]["text"] == '{"a": 1}'
    assert complete(raw, prompt="x", guided_choice=["yes"])["choices"][0]["text"] == "yes"


# param, code
BAD: dict[str, tuple[Json, str | None, str | None]] = {
    "no prompt": ({}, "prompt", "missing_required_parameter"),
    "no prompts": ({"prompt": []}, "prompt", "empty_array"),
    "prompt is a number": ({"prompt": 3}, "prompt", "invalid_type"),
    "prompt is an object": ({"prompt": {}}, "prompt", "invalid_type"),
    "prompts of which one is null": ({"prompt": ["a", None]}, "prompt[1]", "invalid_type"),
    "tokens of which one is text": ({"prompt": [1, "a"]}, "prompt[1]", "invalid_type"),
    "a negative token": ({"prompt": [-1]}, "prompt[0]", "integer_below_min_value"),
    "an unknown token": ({"prompt": [123]}, "prompt", None),
    "a suffix": ({"prompt": "a", "suffix": "b"}, "suffix", "unsupported_parameter"),
    "best_of": ({"prompt": "a", "best_of": 3}, "best_of", "unsupported_parameter"),
    "embeddings": ({"prompt": "a", "prompt_embeds": "x"}, "prompt_embeds", "unsupported_parameter"),
    "too many logprobs": ({"prompt": "a", "logprobs": 21}, "logprobs", "integer_above_max_value"),
    "too many choices": ({"prompt": ["a"] * 9, "n": 128}, "n", None),
    "usage without a stream": ({"prompt": "a", "stream_options": {}}, "stream_options", None),
    "streamed prompt logprobs": ({"prompt": "a", "stream": True, "prompt_logprobs": 1}, "prompt_logprobs", None),
    "no engine for it": ({"prompt": "a", "model": "poor", "echo": True, "logprobs": 1}, "echo", "unsupported_parameter"),
    "too long": ({"prompt": "word " * 140_000}, "prompt", "context_length_exceeded"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_told_what_is_wrong(raw: httpx.Client, case: str) -> None:
    body, param, code = BAD[case]
    answer = raw.post("/v1/completions", json={"model": "scripted", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)


def test_tokens_and_text_go_round(raw: httpx.Client) -> None:
    text = "Zürich 東京 🙂"
    made = raw.post("/tokenize", json={"model": "scripted", "prompt": text}).json()
    assert made["count"] == len(made["tokens"])
    assert made["max_model_len"] == 131_072
    assert made["token_strs"] is None
    back = raw.post("/detokenize", json={"model": "scripted", "tokens": made["tokens"]}).json()
    assert back == {"prompt": text}


def test_messages_are_tokenized_as_chat_would(raw: httpx.Client, sdk: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    tool: Any = {"type": "function", "function": {"name": "f"}}
    asked = {"model": "scripted", "messages": messages, "tools": [tool], "return_token_strs": True}
    made = raw.post("/tokenize", json=asked).json()
    chat = sdk.chat.completions.create(model="scripted", messages=messages, tools=[tool])
    assert chat.usage is not None
    assert made["count"] == chat.usage.prompt_tokens == len(made["token_strs"])
    assert "".join(made["token_strs"]).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [123]}, "tokens"),
    ],
)
def test_what_cannot_be_tokenized_is_a_400(
    raw: httpx.Client, path: str, body: Json, param: str
) -> None:
    answer = raw.post(path, json={"model": "scripted", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
