"""Beam search on each API: its answers, its streams, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.beam_engine import FAILS, TableEngine, TablePlugin

PATHS = {
    "responses": "/responses",
    "chat": "/chat/completions",
    "completions": "/completions",
    "messages": "/messages",
}
USER = [{"role": "user", "content": "say:"}]
BASES: dict[str, dict[str, Any]] = {
    "responses": {"input": "say:", "max_output_tokens": 3},
    "chat": {"messages": USER, "max_tokens": 3},
    "completions": {"prompt": "say:", "max_tokens": 3},
    "messages": {"messages": USER, "max_tokens": 3},
}
BEAMS = {"use_beam_search": True, "best_of": 2}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {"m": {"engine": "table", "parser": "qwen3"}, "plain": {"engine": "scripted"}}
    folder = tmp_path_factory.mktemp("beams")
    with run_gateway({"models": models}, folder, plugins=[TablePlugin()]) as running:
        yield running


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


def post(http: httpx.Client, api: str, **fields: Any) -> httpx.Response:
    return http.post(PATHS[api], json={"model": "m", **BASES[api], **fields})


def text_of(api: str, answer: Any) -> str:
    match api:
        case "responses":
            return str(answer["output"][0]["content"][0]["text"])
        case "chat":
            return str(answer["choices"][0]["message"]["content"])
        case "completions":
            return str(answer["choices"][0]["text"])
        case _:
            return str(answer["content"][0]["text"])


@pytest.mark.parametrize("api", PATHS)
def test_the_best_beam_is_the_answer(http: httpx.Client, api: str) -> None:
    answer = post(http, api, **BEAMS)
    assert answer.status_code == 200, answer.text
    assert text_of(api, answer.json()) == "bbb"  # the most likely tokens, one by one, are "abb"
    usage = answer.json()["usage"]
    assert usage.get("output_tokens", usage.get("completion_tokens")) == 3
    assert text_of(api, post(http, api, use_beam_search=True).json()) == "abb"


@pytest.mark.parametrize("api", PATHS)
def test_a_stream_has_the_answer_in_one_piece(http: httpx.Client, api: str) -> None:
    stream = post(http, api, **BEAMS, stream=True)
    assert stream.status_code == 200, stream.text
    events = [
        json.loads(line[6:])
        for line in stream.text.splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"
    ]
    deltas: list[str] = []
    for event in events:
        match api:
            case "responses" if event["type"] == "response.output_text.delta":
                deltas.append(event["delta"])
            case "chat":
                deltas += [each["delta"].get("content") or "" for each in event["choices"]]
            case "completions":
                deltas += [each["text"] for each in event["choices"]]
            case "messages" if event["type"] == "content_block_delta":
                deltas.append(event["delta"]["text"])
    assert [delta for delta in deltas if delta] == ["bbb"]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_choices_are_the_best_beams(gateway: RunningGateway, http: httpx.Client, api: str) -> None:
    engine = gateway.services.models["m"].engine
    assert isinstance(engine, TableEngine)
    engine.requests.clear()
    answer = post(http, api, use_beam_search=True, n=2, best_of=4, length_penalty=1.0).json()
    requests = len(engine.requests)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    texts = [text_of(api, {"choices": [choice]}) for choice in answer["choices"]]
    assert texts[0] == "bbb"
    assert len(set(texts)) == 2
    assert answer["usage"]["prompt_tokens"] < 100  # the prompt is counted once
    engine.requests.clear()
    post(http, api, use_beam_search=True, n=1, best_of=4)
    assert len(engine.requests) == requests  # the choices share one search


def test_each_prompt_of_completions_has_its_own_search(http: httpx.Client) -> None:
    answer = post(http, "completions", **BEAMS, prompt=["say:", "a"], n=2, logprobs=1, echo=True)
    choices = answer.json()["choices"]
    assert [choice["text"][:1] for choice in choices] == ["s", "s", "a", "a"]
    for choice in choices:
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


def test_log_probabilities_are_those_of_the_beam(http: httpx.Client) -> None:
    answer = post(http, "chat", **BEAMS, logprobs=True, top_logprobs=2).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in content] == ["b", "b", "b"]
    assert [len(each["top_logprobs"]) for each in content] == [2, 2, 2]
    assert content[0]["top_logprobs"][0]["token"] == "a"


def test_an_engine_that_fails_ends_all_choices(http: httpx.Client) -> None:
    answer = post(http, "completions", use_beam_search=True, n=3, prompt=f"{FAILS}:")
    assert answer.status_code == 500, answer.text
    assert answer.json()["error"]["message"] == "The table is broken."


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no limit": ({"max_tokens": None}, "max_tokens"),
    "an engine without it": ({"model": "plain"}, "use_beam_search"),
    "too many beams": ({"best_of": 17}, "best_of"),
    "too many choices": ({"n": 17, "best_of": None}, "n"),
    "fewer beams than choices": ({"n": 3}, "best_of"),
    "a stop string": ({"stop": "x"}, "stop"),
    "a bias": ({"logit_bias": {"5": 1}}, "logit_bias"),
    "a penalty": ({"presence_penalty": 1}, "presence_penalty"),
    "bad words": ({"bad_words": ["a"]}, "bad_words"),
    "an endless penalty of the length": ({"length_penalty": 1e9}, "length_penalty"),
    "a format": ({"response_format": {"type": "json_object"}}, "response_format"),
    "a structure": ({"structured_outputs": {"regex": "a+"}}, "structured_outputs.regex"),
    "a limit of reasoning": ({"thinking_token_budget": 5}, "thinking_token_budget"),
    "a required call": (
        {
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "tool_choice": "required",
        },
        "tool_choice",
    ),
    "its parameters without it": (
        {"use_beam_search": False, "length_penalty": 2},
        "length_penalty",
    ),
    "an end without it": ({"use_beam_search": None, "early_stopping": True}, "early_stopping"),
    "more candidates without it": ({"use_beam_search": None}, "best_of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_search_cannot_honour_is_refused_by_name(http: httpx.Client, case: str) -> None:
    fields, param = REFUSED[case]
    answer = post(http, "chat", **{**BEAMS, **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param, answer.text


def test_what_changes_nothing_is_accepted(http: httpx.Client) -> None:
    fields = {
        "temperature": 0.7, "top_p": 0.5, "seed": 3, "stop": [], "logit_bias": {}, "presence_penalty": 0,
        "repetition_penalty": 1, "thinking_budget_tokens": -1, "early_stopping": "never", "length_penalty": 1,
    }  # fmt: skip
    assert text_of("chat", post(http, "chat", **BEAMS, **fields).json()) == "bbb"
    assert post(http, "chat", early_stopping=False, length_penalty=1, best_of=1).status_code == 200


def test_tools_that_may_be_called_do_not_hinder_it(http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": False}}  # fmt: skip
    assert post(http, "chat", **BEAMS, tools=[tool]).status_code == 200


@pytest.fixture(scope="module")
def upstream(
    gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A gateway whose models are those of the other one, reached by messages."""

    def behind(api: str, *extensions: str) -> dict[str, Any]:
        openai = {
            "base_url": gateway.base_url,
            "model": "m",
            "api": api,
            "extensions": list(extensions),
        }
        return {"engine": "openai", "openai": openai}

    search = "use_beam_search"
    models = {
        "m": behind("chat", search),
        "r": behind("responses", search),
        "plain": behind("chat"),
    }
    with (
        run_gateway({"models": models}, tmp_path_factory.mktemp("front")) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as client,
    ):
        yield client


@pytest.mark.parametrize("model", ["m", "r"])
@pytest.mark.parametrize("api", ["responses", "chat", "messages"])
def test_an_upstream_searches_itself(upstream: httpx.Client, api: str, model: str) -> None:
    answer = post(upstream, api, **BEAMS, model=model)
    assert answer.status_code == 200, answer.text
    assert text_of(api, answer.json()) == "bbb"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": "plain"}, "use_beam_search"),
        ({"n": 2}, "n"),
        ({"early_stopping": True}, "early_stopping"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)  # fmt: skip
def test_what_an_upstream_does_not_search_is_refused(
    upstream: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    answer = post(upstream, "chat", **{**BEAMS, **fields})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
