"""No extreme value of a parameter is a 500, a stall or the end of an engine: it works, or a 400 names the parameter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

CONFIG: dict[str, Any] = {
    "server": {"store": "none"},
    "models": {
        "tiny": {"engine": "llamacpp"},
        "scripted": {"engine": "scripted"},
        "embeds": {"engine": "llamacpp", "llamacpp": {"task": "embed"}},
    },
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    pytest.importorskip("xllamacpp")
    with run_gateway(CONFIG, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


# By name: what is asked, and where the error is; None: it works.
SAMPLING: dict[str, tuple[dict[str, Any], str | None]] = {
    "n of 0": ({"n": 0}, "n"),
    "n of 129": ({"n": 129}, "n"),
    "n of 2^63": ({"n": 2**63}, "n"),
    "a fraction for n": ({"n": 1.5}, "n"),
    "300,000 biases": ({"logit_bias": {str(n): 1 for n in range(300_000)}}, "logit_bias"),
    "a bias beyond the vocabulary": ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    "a bias for a negative token": ({"logit_bias": {"-1": 1}}, "logit_bias"),
    "a bias for a word": ({"logit_bias": {"abc": 1}}, "logit_bias"),
    "a bias for a number of 5000 digits": ({"logit_bias": {"1" * 5000: 1}}, "logit_bias"),
    "a bias of 10^308": ({"logit_bias": {"1": 1e308}}, "logit_bias.1"),
    "1024 biases": ({"logit_bias": {str(n): 1 for n in range(1024)}}, None),
    "257 stop strings": ({"stop": [f"s{n}" for n in range(257)]}, "stop"),
    "256 stop strings": ({"stop": [f"s{n}" for n in range(256)]}, None),
    "an empty stop string": ({"stop": ""}, "stop"),
    "an empty stop string in a list": ({"stop": [""]}, "stop[0]"),
    "no stop strings": ({"stop": []}, None),
    "a stop string of 10 MB": ({"stop": "x" * 10_000_000}, "stop"),
    "a stop string of 10 MB in a list": ({"stop": ["x" * 10_000_000]}, "stop[0]"),
    "max_tokens of 2^63": ({"max_tokens": 2**63}, "max_tokens"),
    "max_tokens of 2^70": ({"max_tokens": 2**70}, "max_tokens"),
    "max_tokens of -1": ({"max_tokens": -1}, "max_tokens"),
    "top_logprobs of 21": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "top_logprobs of -1": ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    "top_logprobs of 20": ({"logprobs": True, "top_logprobs": 20}, None),
    "a seed of 2^63": ({"seed": 2**63}, "seed"),
    "a seed of 2^200": ({"seed": 2**200}, "seed"),
    "a seed of -2^63": ({"seed": -(2**63)}, None),
    "a seed of 2^63-1": ({"seed": 2**63 - 1}, None),
    "a temperature of 10^308": ({"temperature": 1e308}, "temperature"),
    "a negative temperature": ({"temperature": -1}, "temperature"),
    "a denormal temperature": ({"temperature": 1e-320}, None),
    "top_p of 0": ({"top_p": 0}, None),
    "a denormal top_p": ({"top_p": 1e-320}, None),
    "top_k of 2^63": ({"top_k": 2**63}, "top_k"),
    "top_k of -5": ({"top_k": -5}, "top_k"),
    "min_p of 2": ({"min_p": 2}, "min_p"),
    "a repetition_penalty of 10^-300": ({"repetition_penalty": 1e-300}, "repetition_penalty"),
    "a repetition_penalty of 10^308": ({"repetition_penalty": 1e308}, "repetition_penalty"),
    "a repetition_penalty of 0.01": ({"repetition_penalty": 0.01}, None),
    "129 bad words": ({"bad_words": ["a"] * 129}, "bad_words"),
    "an empty bad word": ({"bad_words": [""]}, "bad_words[0]"),
    "a bad word of 1 MB": ({"bad_words": ["x" * 1_000_000]}, "bad_words[0]"),
    "a stop token beyond the vocabulary": ({"stop_token_ids": [2**31 - 1]}, "stop_token_ids"),
    "a negative stop token": ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    "1025 stop tokens": ({"stop_token_ids": list(range(1025))}, "stop_token_ids"),
    "min_tokens of 2^63": ({"min_tokens": 2**63}, "min_tokens"),
    "min_tokens above max_tokens": ({"min_tokens": 100}, "min_tokens"),
    "a priority of 2^70": ({"priority": 2**70}, "priority"),
    "a salt of 1 MB": ({"cache_salt": "x" * 1_000_000}, "cache_salt"),
    "best_of of 10^6": ({"best_of": 10**6}, "best_of"),
}
PROMPTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "no prompt": ({"prompt": []}, "prompt"),
    "an empty prompt": ({"prompt": ""}, "prompt"),
    "an empty array": ({"prompt": [[]]}, "prompt[0]"),
    "a token beyond the vocabulary": ({"prompt": [10**9]}, "prompt"),
    "a negative token": ({"prompt": [-1]}, "prompt[0]"),
    "a token of 2^70": ({"prompt": [2**70]}, "prompt[0]"),
    "a fraction": ({"prompt": [1.5]}, "prompt[0]"),
    "900,000 tokens": ({"prompt": [1] * 900_000}, "prompt"),
    "10,000 prompts": ({"prompt": ["a"] * 10_000}, "prompt"),
    "10,000 prompts of tokens": ({"prompt": [[1]] * 10_000}, "prompt"),
    "tokens and a text": ({"prompt": [1, "a"]}, "prompt[1]"),
    "arrays in arrays in arrays": ({"prompt": [[[1]]]}, "prompt[0][0]"),
    "a text of 5 MB": ({"prompt": "a " * 2_500_000}, "prompt"),
    "a million log probabilities": ({"prompt": "a", "logprobs": 10**6}, "logprobs"),
    "more than 128 choices": ({"prompt": ["a"] * 129, "n": 128}, "n"),
}
RESPONSES: dict[str, tuple[dict[str, Any], str | None]] = {
    "2^63 tokens": ({"max_output_tokens": 2**63}, "max_output_tokens"),
    "no tokens": ({"max_output_tokens": 0}, "max_output_tokens"),
    "2^70 tool calls": ({"max_tool_calls": 2**70}, "max_tool_calls"),
    "no tool calls": ({"max_tool_calls": 0}, "max_tool_calls"),
    "21 log probabilities": ({"top_logprobs": 21}, "top_logprobs"),
    "an unknown truncation": ({"truncation": "x"}, "truncation"),
    "one item that is too long": ({"truncation": "auto", "input": "a " * 400_000}, "input"),
}
EMBEDDINGS: dict[str, tuple[dict[str, Any], str | None]] = {
    "nothing": ({"input": []}, "input"),
    "an empty text": ({"input": ""}, "input"),
    "an empty array": ({"input": [[]]}, "input[0]"),
    "a token beyond the vocabulary": ({"input": [10**9]}, "input"),
    "a token of 2^70": ({"input": [2**70]}, "input[0]"),
    "2049 texts": ({"input": ["a"] * 2049}, "input"),
    "a text of 1 MB": ({"input": "a " * 500_000}, "input"),
    "900,000 tokens": ({"input": [1] * 900_000}, "input"),
    "2^63 dimensions": ({"input": "a", "dimensions": 2**63}, "dimensions"),
}
CASES = [
    *(pytest.param("tiny", "/chat/completions", *case, id=f"chat: {name}") for name, case in SAMPLING.items()),
    *(pytest.param("tiny", "/completions", *case, id=f"completions: {name}") for name, case in PROMPTS.items()),
    *(pytest.param("tiny", "/responses", *case, id=f"responses: {name}") for name, case in RESPONSES.items()),
    *(pytest.param("embeds", "/embeddings", *case, id=f"embeddings: {name}") for name, case in EMBEDDINGS.items()),
]  # fmt: skip
BASE: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
    "/completions": {"max_tokens": 4},
    "/responses": {"input": "Hi", "max_output_tokens": 4},
    "/embeddings": {},
}


@pytest.mark.parametrize(("model", "path", "asked", "param"), CASES)
def test_an_extreme_value_works_or_is_refused_by_name(
    http: httpx.Client, model: str, path: str, asked: dict[str, Any], param: str | None
) -> None:
    begun = time.monotonic()
    answer = http.post(path, json={"model": model, **BASE[path], **asked})
    assert time.monotonic() - begun < 30
    if param is None:
        assert answer.status_code == 200, answer.text
        return
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param, error
    assert len(error["message"]) < 600


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
@pytest.mark.parametrize("name", ["temperature", "seed", "max_output_tokens"])
def test_what_is_no_number_of_json_is_refused(http: httpx.Client, name: str, number: str) -> None:
    body = f'{{"model": "tiny", "input": "Hi", "{name}": {number}}}'
    answer = http.post("/responses", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("sequences", [[f"s{n}" for n in range(10_000)], ["x" * 1_000_000], [""]])
def test_stop_sequences_of_messages_are_bounded_too(http: httpx.Client, sequences: Any) -> None:
    body = {"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    answer = http.post("/messages", json={**body, "stop_sequences": sequences})
    assert answer.status_code == 400, answer.text
    assert "stop_sequences" in answer.text
