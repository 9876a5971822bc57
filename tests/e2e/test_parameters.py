"""No parameter is dropped in silence: on each API it is honoured, refused by name, or reported as ignored.

`gateway.wire.parameter_table` says which, and `tests/data/parameters.toml` has a sample of each. An honoured parameter is seen in what the engine is asked, or in the answer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway.plugins.protocols import Capability
from gateway.sdk import hookimpl
from gateway.wire.api_parameters import ApiParameters
from gateway.wire.parameter_table import CHAT, COMPLETIONS, OTHER_SERVERS, PLUGINS, RESPONSES
from gateway_messages.parameters import MESSAGES
from gateway_scripted import Rule, Scenario, ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

ROOT = Path(__file__).parents[2]
SAMPLES: dict[str, dict[str, Any]] = tomllib.loads(
    (ROOT / "tests" / "data" / "parameters.toml").read_text(encoding="utf-8")
)
APIS = ("responses", "chat", "completions", "messages")
PATHS = {
    "responses": "/responses",
    "chat": "/chat/completions",
    "completions": "/completions",
    "messages": "/messages",
}
TREATMENTS: dict[str, ApiParameters] = {
    "responses": RESPONSES,
    "chat": CHAT,
    "completions": COMPLETIONS,
    "messages": MESSAGES,
}
OTHERS = {row.name for row in OTHER_SERVERS}
USER = {"role": "user", "content": "say"}
BASES: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "say"},
    "chat": {"model": "m", "messages": [USER]},
    "completions": {"model": "m", "prompt": "say"},
    "messages": {"model": "m", "max_tokens": 50, "messages": [USER]},
}
LOGPROBS: dict[str, dict[str, Any]] = {
    "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "chat": {"logprobs": True, "top_logprobs": 2},
    "completions": {"logprobs": 2, "echo": True},
}
RULE: dict[str, Any] = {"when": "say", "pieces": [{"reasoning": "Hm."}, {"text": "a b c"}]}


class AbleEngine(ScriptedEngine):
    """A scripted engine that is handed all parameters."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {
            "allowed_token_ids",
            "vllm_xargs",
            "data_parallel_rank",
            "kv_transfer_params",
            "mm_processor_kwargs",
            "beam_search",
            "gbnf",
        }


class AblePlugin:
    @asynccontextmanager
    async def open(self, config: Any, context: Any) -> AsyncIterator[ScriptedEngine]:
        rules = msgspec.convert([RULE], list[Rule])
        yield AbleEngine(Scenario(rules), name=context.name)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("able", self.open)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    able = {
        "engine": "able",
        "engine_parameters": [
            "vllm_xargs",
            "data_parallel_rank",
            "kv_transfer_params",
            "mm_processor_kwargs",
        ],
        "trust_request_chat_template": True,
        "parser": "qwen3",
    }
    config = {"models": {"m": able, "other": able}, "prompts": {"p": {"text": "Be kind."}}}
    with run_gateway(config, tmp_path_factory.mktemp("all"), plugins=[AblePlugin()]) as running:
        yield running


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


def sample(name: str, api: str) -> Any:
    row = SAMPLES.get(name, {"sample": 5})
    return row.get("for", {}).get(api, row["sample"])


def treatment(name: str, api: str) -> str:
    """`honoured`, `refused`, `ignored`, or `unknown`, which is reported likewise."""
    table = TREATMENTS[api]
    row = SAMPLES.get(name, {})
    if name in table.ignored:
        return "ignored"
    for each in (table, *((PLUGINS,) if api == "messages" else ())):
        if name in each.refusals:
            with_beams = each.refusals[name].unless_beams
            return "honoured" if with_beams else "refused"
        if name in each.honoured:
            return "refused" if "fails" in row else "honoured"
    return "refused" if name in OTHERS else "unknown"


def base_for(name: str, api: str) -> dict[str, Any]:
    """The request without the parameter, and with what it needs."""
    row = SAMPLES.get(name, {})
    known = treatment(name, api) != "unknown"
    body = {**BASES[api], **(row.get("with", {}) if known else {})}
    match row.get("needs"):
        case "a long prompt" if api == "completions":
            body["prompt"] = "say one two three four five six"
        case "log probabilities" if api != "messages":
            body |= LOGPROBS[api]
        case "a limit":
            body["max_output_tokens" if api == "responses" else "max_tokens"] = 5
        case "tools":
            body["tools"] = sample("tools", api)
        case "an assistant at the end":
            said = [USER, {"role": "assistant", "content": "a"}]
            if api == "responses":
                body["input"] = said
            elif api != "completions":
                body["messages"] = said
            if name == "echo" and api == "chat":
                body["continue_final_message"] = True
    return body


_VOLATILE = re.compile(
    r'"(id|item_id|created|created_at|completed_at|request_id|x-request-id|total_time)":\s?("[^"]*"|[0-9.]+)'
    r"|(resp|msg|rs|chatcmpl|cmpl|fc|gen|req)[_-][0-9a-f]{16,}"
)


def outcome(gateway: RunningGateway, http: httpx.Client, api: str, body: Any) -> tuple[str, str]:
    """What the engine was asked, and what was answered, without what differs each time."""
    engines = [gateway.services.models[name].engine for name in ("m", "other")]
    for engine in engines:
        assert isinstance(engine, ScriptedEngine)
        engine.requests.clear()
    answer = http.post(PATHS[api], json=body)
    assert answer.status_code == 200, (body, answer.text)
    asked = [
        repr(request)
        for engine in engines
        if isinstance(engine, ScriptedEngine)
        for request in engine.requests
    ]
    return _VOLATILE.sub("", " ".join(asked)), _VOLATILE.sub("", answer.text)


def test_there_is_a_sample_of_every_parameter() -> None:
    known = {name for table in TREATMENTS.values() for name in table.known | table.ignored}
    assert known == SAMPLES.keys()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", [*SAMPLES, *sorted(OTHERS)])
def test_each_parameter_is_honoured_refused_or_reported(
    gateway: RunningGateway, http: httpx.Client, name: str, api: str
) -> None:
    done = treatment(name, api)
    base = base_for(name, api)
    body = {**base, name: sample(name, api)}
    answer = http.post(PATHS[api], json=body)
    reported = answer.headers.get("x-litegate-ignored-parameters", "").split(", ")
    if done == "refused":
        assert answer.status_code in (400, 404), answer.text
        error = answer.json()["error"]
        param = error.get("param") or error["message"]
        assert name in param, error
        return
    assert answer.status_code == 200, answer.text
    assert (name in reported) == (done in ("ignored", "unknown"))
    if done == "honoured" and "unseen" not in SAMPLES[name]:
        assert outcome(gateway, http, api, body) != outcome(gateway, http, api, base)


@pytest.mark.parametrize("api", APIS)
def test_the_same_request_has_the_same_outcome(
    gateway: RunningGateway, http: httpx.Client, api: str
) -> None:
    """So that what the test above sees is the parameter's own effect."""
    first = outcome(gateway, http, api, BASES[api])
    assert outcome(gateway, http, api, BASES[api]) == first


def test_a_request_id_ends_the_engines_own(gateway: RunningGateway, http: httpx.Client) -> None:
    engine = gateway.services.models["m"].engine
    assert isinstance(engine, ScriptedEngine)
    for api in APIS:
        body = {**BASES[api], "request_id": "mine.1", **({"n": 2} if api == "chat" else {})}
        engine.requests.clear()
        assert http.post(PATHS[api], json=body).status_code == 200
        made = [request.request_id for request in engine.requests]
        assert all(each.endswith("-mine.1") for each in made), made
        assert len(set(made)) == len(made)


def test_the_rank_may_be_a_header(gateway: RunningGateway, http: httpx.Client) -> None:
    engine = gateway.services.models["m"].engine
    assert isinstance(engine, ScriptedEngine)
    for api in APIS:
        answer = http.post(PATHS[api], json=BASES[api], headers={"X-data-parallel-rank": "3"})
        assert answer.status_code == 200
        assert engine.requests[-1].data_parallel_rank == 3
        wrong = http.post(PATHS[api], json=BASES[api], headers={"X-data-parallel-rank": "-1"})
        assert wrong.status_code == 400
        error = wrong.json()["error"]
        assert api == "messages" or error["param"] == "data_parallel_rank"


def test_a_structure_on_responses_is_enforced_and_its_faults_are_named(http: httpx.Client) -> None:
    def post(**fields: Any) -> httpx.Response:
        return http.post("/responses", json={"model": "m", "input": "x", **fields})

    text = {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}
    both = post(structured_outputs={"json": {"type": "object"}}, text=text).json()["error"]
    assert (both["param"], both["code"]) == ("structured_outputs.json", "mutually_exclusive_parameters")  # fmt: skip
    two = post(guided_regex="a", guided_choice=["a"]).json()["error"]
    assert two["param"] == "guided_choice"
    tag = post(structured_outputs={"structural_tag": {"a": 1}}).json()["error"]
    assert tag["param"] == "structured_outputs.structural_tag.format"
    done = post(structured_outputs={"json": {"type": "object", "required": ["a"], "properties": {"a": {"const": 5}}}})  # fmt: skip
    assert done.json()["output"][-1]["content"][0]["text"] == '{"a": 5}'


def test_a_continuation_needs_a_message_of_the_assistant(http: httpx.Client) -> None:
    body = {**BASES["responses"], "continue_final_message": True}
    assert http.post("/responses", json=body).json()["error"]["param"] == "continue_final_message"


def test_what_the_model_does_not_allow_is_refused(http: httpx.Client, tmp_path: Path) -> None:
    with (
        run_gateway({"models": {"m": {"engine": "scripted"}}}, tmp_path) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as client,
    ):
        for api in APIS:
            for name in ("vllm_xargs", "data_parallel_rank", "allowed_token_ids"):
                answer = client.post(PATHS[api], json={**BASES[api], name: SAMPLES[name]["sample"]})
                assert answer.status_code == 400
                assert name in answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["responses", "chat", "completions"])
def test_tokens_of_log_probabilities_may_be_ids(http: httpx.Client, api: str, stream: bool) -> None:
    body = {**BASES[api], **LOGPROBS[api], "return_tokens_as_token_ids": True, "stream": stream}
    shown = http.post(PATHS[api], json=body).text
    tokens = re.findall(r'"token":\s?"([^"]*)"', shown)
    if api == "completions":
        lists = re.findall(r'"tokens":\s?\[([^]]*)\]', shown)
        tokens = [each.strip('" ') for one in lists for each in one.split(",")]
        assert '"text_offset":[0' in shown.replace(" ", "")
    assert len(tokens) > 3
    assert all(re.fullmatch(r"token_id:\d+", each) for each in tokens), tokens


def test_special_tokens_are_shown_without_spaces(http: httpx.Client) -> None:
    spaced = {"skip_special_tokens": False, "spaces_between_special_tokens": True}
    answer = http.post("/completions", json={**BASES["completions"], **spaced})
    assert answer.json()["error"]["param"] == "spaces_between_special_tokens"
