"""What self-hosted engines take beyond OpenAI's parameters, at the top level of a chat request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway.base.constraints import Const, Grammar, JsonSchema, OneOf, Regex, Sequence
from gateway.plugins.protocols import TokensPrompt
from gateway_scripted import ScriptedEngine
from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.server import RunningGateway
from tests.e2e.engine_prompts import prompt_of

Json = dict[str, Any]


def ask(raw: httpx.Client, text: str = "hello", status: int = 200, **body: Any) -> Json:
    given = {"model": "scripted", "messages": [{"role": "user", "content": text}], **body}
    answer = raw.post("/v1/chat/completions", json=given)
    assert answer.status_code == status, answer.text
    found: Json = answer.json()
    return found


def message(answer: Json) -> Json:
    found: Json = answer["choices"][0]["message"]
    return found


def test_sampling_reaches_the_engine(sdk: OpenAI, engine: ScriptedEngine) -> None:
    extra = {
        "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.1, "min_tokens": 1, "stop_token_ids": [9],
        "ignore_eos": True, "include_stop_str_in_output": True, "bad_words": ["x"],
        "cache_salt": "salt", "priority": -3,
    }  # fmt: skip
    sdk.chat.completions.create(
        model="scripted",
        messages=[{"role": "user", "content": "hello"}],
        temperature=0.25,
        seed=5,
        logit_bias={"11": -2},
        extra_body=extra,
    )
    request = engine.requests[-1]
    sampling = request.sampling
    assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (7, 0.1, 1.1)
    assert (sampling.min_tokens, sampling.temperature, sampling.seed) == (1, 0.25, 5)
    assert (sampling.ignore_eos, sampling.include_stop_str_in_output) == (True, True)
    assert (sampling.bad_words, sampling.logit_bias) == (("x",), {11: -2.0})
    assert 9 in sampling.stop_token_ids
    assert (request.cache_salt, request.priority) == ("salt", -3)


def test_a_final_message_is_continued_and_echoed(raw: httpx.Client, engine: ScriptedEngine) -> None:
    messages = [{"role": "user", "content": "tell"}, {"role": "assistant", "content": "Once upon"}]
    body = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
    assert message(ask(raw, **body))["content"] == " a time."
    assert prompt_of(engine).endswith("Once upon")
    assert message(ask(raw, **body, echo=True))["content"] == "Once upon a time."
    stream = raw.post(
        "/v1/chat/completions", json={"model": "scripted", "stream": True, "echo": True, **body}
    )
    [choice] = fold_chunks(parse_chunks(stream.content))["choices"]
    assert choice["message"]["content"] == "Once upon a time."


def test_the_generation_prompt_may_be_left_out(raw: httpx.Client, engine: ScriptedEngine) -> None:
    ask(raw)
    assert prompt_of(engine).endswith("<|im_start|>assistant\n")
    ask(raw, add_generation_prompt=False)
    assert prompt_of(engine).endswith("hello<|im_end|>\n")


def test_a_requests_own_template_only_where_it_is_trusted(raw: httpx.Client) -> None:
    template = "{{ greeting }} {{ documents[0].text }} {{ messages[0].content }}"
    extra = {
        "chat_template": template,
        "chat_template_kwargs": {"greeting": "Hi"},
        "documents": [{"title": "a", "text": "b"}],
        "tool_choice": "none",
    }
    tokens = raw.post(
        "/tokenize",
        json={"model": "trusting", "messages": [{"role": "user", "content": "c"}], **extra},
    ).json()["tokens"]
    text = raw.post("/detokenize", json={"model": "trusting", "tokens": tokens}).json()["prompt"]
    assert text == "Hi b c"
    refused = ask(raw, status=400, **extra)["error"]
    assert refused["param"] == "chat_template"


def test_template_variables_reach_the_template(raw: httpx.Client, engine: ScriptedEngine) -> None:
    ask(raw, chat_template_kwargs={"enable_thinking": False})
    assert prompt_of(engine).endswith("<think>\n\n</think>\n\n")


def test_token_ids_are_those_of_prompt_and_output(
    raw: httpx.Client, engine: ScriptedEngine
) -> None:
    plain = ask(raw, "think first", return_token_ids=True)
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, TokensPrompt)
    assert plain["prompt_token_ids"] == list(prompt.token_ids)
    written = engine.tokenizer.decode(plain["choices"][0]["token_ids"])
    assert written.startswith("<think>\nHm.")
    assert written.endswith("Done thinking.")
    body = {"model": "scripted", "stream": True, "return_token_ids": True, "n": 2}
    stream = raw.post(
        "/v1/chat/completions",
        json={**body, "messages": [{"role": "user", "content": "think first"}]},
    )
    chunks = parse_chunks(stream.content)
    told = [chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk]
    assert told == [plain["prompt_token_ids"]]
    for choice in fold_chunks(chunks)["choices"]:
        assert choice["token_ids"] == plain["choices"][0]["token_ids"]


def test_prompt_logprobs_have_one_entry_per_token(raw: httpx.Client) -> None:
    answer = ask(raw, prompt_logprobs=2, n=2)
    told = answer["prompt_logprobs"]
    assert len(told) == answer["usage"]["prompt_tokens"]
    assert told[0] is None
    for entry in told[1:]:
        assert sorted(found["rank"] for found in entry.values()) == [1, 2]
        assert all(found["logprob"] < 0 and found["decoded_token"] for found in entry.values())


def test_usage_so_far_is_in_every_chunk_where_it_is_asked_for(raw: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = raw.post(
        "/v1/chat/completions",
        json={
            "model": "scripted",
            "stream": True,
            "stream_options": options,
            "messages": [{"role": "user", "content": "think first"}],
        },
    )
    chunks = parse_chunks(stream.content)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == fold_chunks(chunks, includes_usage=True)["usage"]["completion_tokens"]  # fmt: skip
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1


def test_reasoning_may_be_left_out(raw: httpx.Client) -> None:
    told = message(ask(raw, "think first", include_reasoning=False))
    assert told["content"] == "Done thinking."
    assert "reasoning" not in told
    assert "reasoning_content" not in told


SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, '{"a": 1}'),
        ({"response_format": {"type": "json_object"}}, "{}"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, '{"a": 1}'),
        ({"response_format": {"type": "json_object", "schema": {}}}, "{}"),
        ({"response_format": {"type": "text"}}, "hello"),
        ({"structured_outputs": {"json": SCHEMA}}, '{"a": 1}'),
        ({"structured_outputs": {"json_object": True}}, "{}"),
        ({"guided_json": SCHEMA}, '{"a": 1}'),
        ({"guided_json": '{"const": "a"}'}, '"a"'),
    ],
)  # fmt: skip
def test_what_the_answer_must_be(raw: httpx.Client, asked: Json, expected: str) -> None:
    assert message(ask(raw, **asked))["content"] == expected


@pytest.mark.parametrize(
    ("asked", "enforced"),
    [
        ({"guided_regex": "a+"}, Regex("a+")),
        ({"structured_outputs": {"regex": "b?"}}, Regex("b?")),
        ({"guided_choice": ["yes", "no"]}, OneOf((Const("yes"), Const("no")))),
        ({"structured_outputs": {"choice": ["x"]}}, OneOf((Const("x"),))),
    ],
)
def test_what_no_text_format_can_say_is_enforced_where_the_text_begins(
    raw: httpx.Client, engine: ScriptedEngine, asked: Json, enforced: Any
) -> None:
    ask(raw, **asked)
    assert enforced in leaves(engine.requests[-1].constraint)


def leaves(constraint: Any) -> list[Any]:
    """The parts of a constraint, and it itself."""
    found = [constraint]
    match constraint:
        case Sequence(parts):
            found += [leaf for part in parts for leaf in leaves(part)]
        case OneOf(options):
            found += [leaf for option in options for leaf in leaves(option)]
    assert not any(isinstance(leaf, JsonSchema | Grammar) for leaf in found)
    return found


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"grammar": "root ::= [a]"}}, "structured_outputs.grammar"),
        (
            {
                "structured_outputs": {
                    "structural_tag": {"format": {"type": "regex", "pattern": "a"}}
                }
            },
            "structured_outputs.structural_tag",
        ),
    ],
)
def test_an_engine_that_cannot_says_so(raw: httpx.Client, asked: Json, param: str) -> None:
    error = ask(raw, status=400, model="poor", **asked)["error"]
    assert (error["param"], error["code"]) == (param, "unsupported_parameter")


def test_an_adapter_is_a_model(
    raw: httpx.Client, sdk: OpenAI, chat_gateway: RunningGateway
) -> None:
    models = {model["id"]: model for model in raw.get("/v1/models").json()["data"]}
    assert models["tuned"]["parent"] == "base"
    assert models["tuned"]["root"] == "tuned"
    assert models["base"]["parent"] is None
    for model in models.values():
        assert model["object"] == "model"
        assert model["owned_by"]
        assert model["created"] > 1_700_000_000
        assert model["max_model_len"] == 131_072
    engine = chat_gateway.services.models["base"].engine
    assert isinstance(engine, ScriptedEngine)
    for name, adapter in (("base", None), ("tuned", "tuned")):
        made = sdk.chat.completions.create(
            model=name, messages=[{"role": "user", "content": "hello"}]
        )
        assert (made.model, made.choices[0].message.content) == (name, "hello")
        assert engine.requests[-1].adapter == adapter
    assert sdk.responses.create(model="tuned", input="hi").output_text == "hi"
    assert sdk.completions.create(model="tuned", prompt="hi").choices[0].text == "hi"
    assert engine.requests[-1].adapter == "tuned"
