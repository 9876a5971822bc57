"""What each kind of server is sent, and how its events are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.base.constraints import (
    Const,
    Constraint,
    Grammar,
    JsonObject,
    JsonSchema,
    OneOf,
    Regex,
)
from gateway.base.constraints import Sequence as InSequence
from gateway.base.errors import InvalidRequest, Unsupported
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_remote.dialects import DIALECTS, Dialect, ServedModelInfo
from gateway_remote.failures import ReplicaFailure, read_error, refusal
from gateway_remote.output import OutputBuilder
from gateway_remote.structure import (
    LlamaCppStructures,
    SglangStructures,
    TrtllmStructures,
    VllmStructures,
)
from gateway_remote.tokenizer import load_tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
TREE = InSequence((Const("<x>"), JsonSchema(SCHEMA), Const("</x>")))


@pytest.fixture(scope="module")
def dialects(vocabulary: str) -> dict[str, Dialect]:
    tokenizer = load_tokenizer(Path(vocabulary))
    served = ServedModelInfo(model="big", max_model_len=100, vocabulary=5000, adapters=("small",))
    xgrammar: dict[str, Any] = {
        "vllm": VllmStructures,
        "vllm-generate": VllmStructures,
        "sglang": SglangStructures,
        "trtllm": TrtllmStructures,
    }
    return {
        name: kind(
            served,
            tokenizer,
            xgrammar[name](tokenizer.special, frozenset({4000}), None)
            if name in xgrammar
            else LlamaCppStructures(),
        )
        for name, kind in DIALECTS.items()
    }


def request(constraint: Constraint | None = None, **options: Any) -> EngineRequest:
    own = {
        name: options.pop(name) for name in ("adapter", "cache_salt", "priority") if name in options
    }
    return EngineRequest(
        request_id="r1",
        prompt=TokensPrompt(token_ids=[1, 2, 3]),
        sampling=Sampling(**options),
        constraint=constraint,
        **own,
    )


def body(dialect: Dialect, asked: EngineRequest) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(dialect.body(asked, dialect.prompt(asked))))
    return made


EVERYTHING: dict[str, Any] = {
    "max_tokens": 5,
    "temperature": 0.0,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
    "repetition_penalty": 1.1,
    "seed": 0,
    "stop": ("x",),
    "stop_token_ids": (7,),
    "ignore_eos": True,
    "logit_bias": {5: -1.0},
    "logprobs": 2,
}


def test_vllms_completions_are_sent_every_parameter(dialects: dict[str, Dialect]) -> None:
    asked = request(
        **EVERYTHING, min_tokens=2, bad_words=("no",), adapter="small", cache_salt="s", priority=-3
    )
    assert body(dialects["vllm"], asked) == {
        "model": "small",
        "prompt": [1, 2, 3],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "request_id": "r1",
        "max_tokens": 5,
        "min_tokens": 2,
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": 3,
        "min_p": 0.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.3,
        "repetition_penalty": 1.1,
        "seed": 0,
        "stop": ["x"],
        "stop_token_ids": [7],
        "bad_words": ["no"],
        "ignore_eos": True,
        "logit_bias": {"5": -1.0},
        "logprobs": 2,
        "cache_salt": "s",
        "priority": -3,
    }


def test_vllms_generate_is_sent_every_parameter(dialects: dict[str, Dialect]) -> None:
    asked = request(**EVERYTHING, min_tokens=2, bad_words=("no",), adapter="small", cache_salt="s")
    made = body(dialects["vllm-generate"], asked)
    assert made["token_ids"] == [1, 2, 3]
    assert (made["model"], made["cache_salt"], made["stream"]) == ("small", "s", True)
    params = made["sampling_params"]
    assert {
        name: params[name]
        for name in EVERYTHING
        if name not in ("stop", "stop_token_ids", "logit_bias")
    } == {
        name: value
        for name, value in EVERYTHING.items()
        if name not in ("stop", "stop_token_ids", "logit_bias")
    }
    assert params["stop"] == ["x"]
    assert params["detokenize"] is True
    assert body(dialects["vllm-generate"], request())["sampling_params"]["detokenize"] is False


def test_llama_server_is_sent_its_own_names(dialects: dict[str, Dialect]) -> None:
    made = body(dialects["llamacpp"], request(**EVERYTHING))
    assert made["n_predict"] == 5
    assert made["repeat_penalty"] == 1.1
    assert made["n_probs"] == 2
    assert made["logit_bias"] == [[5, -1.0]]
    assert made["cache_prompt"] is False
    assert "stop" not in made, "its stop strings lose token ids"


def test_trtllm_is_sent_nothing_that_it_does_not_know(dialects: dict[str, Dialect]) -> None:
    known = {
        "model", "prompt", "stream", "stream_options", "max_tokens", "temperature", "top_p", "top_k", "min_p",
        "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "stop_token_ids", "ignore_eos",
        "logit_bias", "logprobs", "detokenize", "min_tokens", "response_format",
    }  # fmt: skip
    made = body(dialects["trtllm"], request(JsonObject(), **EVERYTHING | {"ignore_eos": False}))
    assert set(made) <= known
    assert made["detokenize"] is False


@pytest.mark.parametrize("name", DIALECTS)
def test_without_a_limit_the_room_that_is_left_is_asked_for(
    dialects: dict[str, Dialect], name: str
) -> None:
    made = body(dialects[name], request())
    found = made.get("sampling_params", made)
    assert found.get("max_tokens", found.get("n_predict")) == 97


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        *((name, "prompt_logprobs", 1) for name in DIALECTS),
        *((name, "bad_words", ("x",)) for name in ("sglang", "trtllm", "llamacpp")),
        *((name, "priority", 1) for name in ("sglang", "trtllm", "llamacpp")),
        ("trtllm", "cache_salt", "s"),
        ("llamacpp", "min_tokens", 1),
    ],
)
def test_what_a_server_cannot_do_is_refused_by_name(
    dialects: dict[str, Dialect], name: str, parameter: str, value: Any
) -> None:
    with pytest.raises(Unsupported) as caught:
        body(dialects[name], request(**{parameter: value}))
    assert caught.value.param == parameter


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("ids", [[], [-1], [5000], [1] * 100])
def test_prompts_that_cannot_be_are_refused_here(
    dialects: dict[str, Dialect], name: str, ids: list[int]
) -> None:
    asked = EngineRequest(request_id="r", prompt=TokensPrompt(token_ids=ids))
    with pytest.raises(InvalidRequest) as caught:
        dialects[name].prompt(asked)
    assert caught.value.param == "input"


def test_constraints_are_said_in_each_servers_fields(dialects: dict[str, Dialect]) -> None:
    vllm = body(dialects["vllm"], request(JsonSchema(SCHEMA)))["structured_outputs"]
    assert vllm == {"json": SCHEMA}
    generate = body(dialects["vllm-generate"], request(TREE))
    tag = json.loads(generate["sampling_params"]["structured_outputs"]["structural_tag"])
    assert [part["type"] for part in tag["format"]["elements"]] == [
        "const_string",
        "json_schema",
        "const_string",
    ]
    assert generate["reasoning_ended"] is True
    sglang = dialects["sglang"]
    assert json.loads(body(sglang, request(JsonSchema(SCHEMA)))["json_schema"]) == SCHEMA
    assert body(sglang, request(Regex("[ab]")))["regex"] == "[ab]"
    assert body(sglang, request(Grammar("gbnf", 'root ::= "a"')))["ebnf"] == 'root ::= "a"'
    assert body(sglang, request(TREE))["response_format"] == tag
    trtllm = dialects["trtllm"]
    assert body(trtllm, request(JsonSchema(SCHEMA)))["response_format"] == {
        "type": "json",
        "schema": SCHEMA,
    }
    assert body(trtllm, request(TREE))["response_format"] == tag
    assert "root" in body(dialects["llamacpp"], request(TREE))["grammar"]


@pytest.mark.parametrize("name", ["sglang", "trtllm", "llamacpp"])
def test_lark_is_refused_where_it_cannot_be_enforced(
    dialects: dict[str, Dialect], name: str
) -> None:
    with pytest.raises(Unsupported):
        body(dialects[name], request(Grammar("lark", 'start: "a"')))


def test_lengths_of_strings_are_a_grammar_with_escapes_that_xgrammar_reads(
    dialects: dict[str, Dialect],
) -> None:
    schema = {**SCHEMA, "properties": {"a": {"type": "string", "maxLength": 3}}}
    for constraint in (JsonSchema(schema), OneOf((JsonSchema(schema), Const("no")))):
        made = json.dumps(body(dialects["vllm"], request(constraint)))
        assert "::=" in made
        assert "\\\\x" not in made


SGLANG = [
    {"choices": [{"index": 0, "text": "he", "logprobs": None, "finish_reason": None,
                  "matched_stop": None, "token_ids": [104, 101], "prompt_token_ids": [1, 2, 3]}]},
    {"choices": [{"index": 0, "text": "y", "finish_reason": "stop", "matched_stop": 4000,
                  "token_ids": [121, 4000]}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4,
                              "prompt_tokens_details": {"cached_tokens": 2}}},
]  # fmt: skip
TRTLLM = [
    {"choices": [{"index": 0, "text": "", "token_ids": [104, 101], "logprobs": None}]},
    {"choices": [{"index": 0, "text": "", "token_ids": [121], "finish_reason": "stop",
                  "stop_reason": None}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}},
]  # fmt: skip
OLD_SGLANG = [
    {"choices": [{"index": 0, "text": "he"}]},
    {"choices": [{"index": 0, "text": "y", "finish_reason": "stop", "matched_stop": 4000}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}},
]


@pytest.mark.parametrize(
    ("name", "events"), [("sglang", SGLANG), ("trtllm", TRTLLM), ("sglang", OLD_SGLANG)]
)
def test_recorded_shapes_are_read(
    dialects: dict[str, Dialect], name: str, events: list[dict[str, Any]]
) -> None:
    dialect = dialects[name]
    builder = OutputBuilder(
        dialect.tokenizer, Sampling(skip_special_tokens=False), eos_is_last=False, prompt_tokens=3
    )
    for event in events:
        dialect.read(json.dumps(event).encode(), builder)
    builder.complete = True
    output = builder.take()
    assert output is not None
    assert output.text == "hey"
    assert list(output.token_ids)[:3] == list(b"hey")
    assert output.finish_reason == "stop"
    assert (output.prompt_tokens, output.cached_tokens) == (3, 2)


def test_logprobs_by_text_find_their_ids(dialects: dict[str, Dialect]) -> None:
    dialect = dialects["sglang"]
    builder = OutputBuilder(
        dialect.tokenizer, Sampling(logprobs=2), eos_is_last=False, prompt_tokens=3
    )
    event = {
        "choices": [
            {
                "text": "a",
                "token_ids": [97],
                "finish_reason": "length",
                "logprobs": {
                    "tokens": ["a"],
                    "token_logprobs": [-0.5],
                    "top_logprobs": [{"b": -1.5, "a": -0.5}],
                },
            }
        ]
    }
    dialect.read(json.dumps(event).encode(), builder)
    builder.complete = True
    output = builder.take()
    assert output is not None
    assert output.logprobs is not None
    (entry,) = output.logprobs
    assert (entry.token_id, entry.logprob, entry.bytes) == (97, -0.5, b"a")
    assert [(top.token_id, top.logprob) for top in entry.top] == [(97, -0.5), (98, -1.5)]


def test_errors_in_a_stream_are_the_requests_or_the_replicas(dialects: dict[str, Dialect]) -> None:
    builder = OutputBuilder(
        dialects["vllm"].tokenizer, Sampling(), eos_is_last=True, prompt_tokens=3
    )
    for name in ("vllm", "vllm-generate", "llamacpp"):
        with pytest.raises(InvalidRequest, match="bad"):
            dialects[name].read(b'{"error":{"message":"bad","code":400}}', builder)
        with pytest.raises(ReplicaFailure, match="dead"):
            dialects[name].read(b'{"error":{"message":"dead","code":500}}', builder)


@pytest.mark.parametrize(
    ("answer", "message", "param", "code"),
    [
        (
            b'{"error":{"message":"This model\'s maximum context length is 5","param":"prompt","code":400}}',
            "This model's maximum context length is 5",
            "input",
            "context_length_exceeded",
        ),
        (
            b'{"object":"error","message":"top_k","param":"top_k","code":400}',
            "top_k",
            "top_k",
            None,
        ),
        (b'{"detail":"no"}', "no", None, None),
        (b"<html>what</html>", "<html>what</html>", None, None),
        (b"", "HTTP status 400", None, None),
        (b'{"error":"plain"}', "plain", None, None),
    ],
)
def test_errors_are_read_in_whichever_shape(
    answer: bytes, message: str, param: str | None, code: str | None
) -> None:
    error = refusal(read_error(answer, 400))
    assert (error.message, error.param, error.code) == (message, param, code)
