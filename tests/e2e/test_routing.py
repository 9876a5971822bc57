"""Routes and routers: a request is answered by the first model that can."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from msgspec import Struct

from gateway import hookimpl
from gateway.base.errors import ConfigurationError
from gateway.config import load_config
from gateway.plugins.hookspecs import OpenRouter, Register
from gateway.plugins.protocols import RoutingRequest
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway

FAILS = [
    {"when": "fail", "pieces": [], "finish": "error"},
    {"when": "crash", "pieces": [], "finish": "crash"},
    {"when": "break late", "pieces": [{"text": "I begin"}], "finish": "error"},
    {"when": "busy", "error": {"status": 503, "message": "Away."}},
    {"when": "refuse", "error": {"status": 400, "message": "No."}},
    {"when": "slowly", "pieces": [{"text": "tick "}], "repeat": 1000, "delay_ms": 20},
]
WORKS = [{"when": "", "pieces": [{"text": "from the second"}]}]


class RouterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    models: list[str]


class OwnRouter:
    def __init__(self, models: Sequence[str]) -> None:
        self.models = models
        self.asked: list[RoutingRequest] = []

    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        self.asked.append(request)
        return self.models if request.model == "anything" else None


@asynccontextmanager
async def open_own(config: RouterConfig) -> AsyncIterator[OwnRouter]:
    yield OwnRouter(config.models)


@hookimpl
def gateway_register_routers(register: Register[OpenRouter]) -> None:
    register("own", open_own, config=RouterConfig)


def plugin() -> ModuleType:
    module = ModuleType("gateway_own")
    vars(module)["gateway_register_routers"] = gateway_register_routers
    return module


@pytest.fixture
def gateway(gateway_server: StartGateway, tmp_path: Path) -> RunningGateway:
    for name, rules in (("fails", FAILS), ("works", WORKS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(rules))
    model = {"engine": "scripted", "scripted": {"recover_after": 3600}}
    config = {
        "models": {
            "first": {**model, "path": "fails.json", "max_running": 1, "max_waiting": 0},
            "short": {**model, "path": "works.json", "max_model_len": 60},
            "second": {**model, "path": "works.json", "aliases": ["also"]},
        },
        "routes": {
            "both": {"models": ["first", "also"]},
            "lengths": {"models": ["short", "second"]},
            "alone": {"models": ["first", "second"], "fallback": False},
            "dead": {"models": ["first"]},
            "neither": {"models": ["first", "short"]},
        },
        "routers": {"own": {"models": ["unknown", "first", "second"]}},
    }
    return gateway_server(config, plugins=[plugin()], folder=tmp_path)


def post(gateway: RunningGateway, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{gateway.base_url}{path}", json=body, timeout=30)


def said(answer: httpx.Response, path: str, *, stream: bool) -> tuple[str, str]:
    """The text of an answer, and its model."""
    if path == "/responses":
        final = fold(parse_sse(answer.content)) if stream else answer.json()
        return final["output"][0]["content"][0]["text"], final["model"]
    if stream and path == "/messages":
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]  # fmt: skip
        text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")  # fmt: skip
        assert [e["type"] for e in events].count("message_start") == 1
        return text, events[0]["message"]["model"]
    if path == "/messages":
        return answer.json()["content"][0]["text"], answer.json()["model"]
    key = "text" if path == "/completions" else "content"
    if stream:
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]  # fmt: skip
        parts = [c["choices"][0] for c in chunks if c["choices"]]
        pieces = [p.get("delta", p).get(key) or "" for p in parts]
        assert len({c["model"] for c in chunks}) == 1
        return "".join(pieces), chunks[0]["model"]
    choice = answer.json()["choices"][0]
    return choice.get("message", choice)[key], answer.json()["model"]


def body_of(path: str, text: str) -> dict[str, Any]:
    match path:
        case "/responses":
            return {"input": text}
        case "/completions":
            return {"prompt": text, "max_tokens": 50}
        case "/messages":
            return {"messages": [{"role": "user", "content": text}], "max_tokens": 50}
        case _:
            return {"messages": [{"role": "user", "content": text}]}


PATHS = ("/responses", "/chat/completions", "/completions", "/messages")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("why", ["fail", "crash"])
def test_a_failure_before_the_first_output_moves_on_to_the_next_model(
    gateway: RunningGateway, path: str, stream: bool, why: str
) -> None:
    answer = post(gateway, path, model="both", stream=stream, **body_of(path, why))
    assert answer.status_code == 200, answer.text
    assert said(answer, path, stream=stream) == ("from the second", "second")
    assert answer.headers["x-litegate-model"] == "second"
    if why == "crash":  # it is away now, which the check of the next request finds
        again = post(gateway, path, model="both", stream=stream, **body_of(path, "hello"))
        assert said(again, path, stream=stream)[1] == "second"


@pytest.mark.parametrize("path", PATHS)
def test_nothing_moves_on_after_the_first_output(gateway: RunningGateway, path: str) -> None:
    body = body_of(path, "break late")
    answer = post(gateway, path, model="both", stream=True, **body)
    assert "from the second" not in answer.text
    assert answer.status_code == 200
    assert answer.headers["x-litegate-model"] == "first"
    plain = post(gateway, path, model="both", **body)
    assert plain.status_code == 500


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_invalid_request_is_not_tried_again(
    gateway: RunningGateway, path: str, stream: bool
) -> None:
    answer = post(gateway, path, model="both", stream=stream, **body_of(path, "refuse"))
    assert answer.status_code == 400
    assert "No." in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_a_prompt_that_is_too_long_goes_to_a_model_with_a_longer_context(
    gateway: RunningGateway, path: str
) -> None:
    long = "many words and more of them " * 20
    answer = post(gateway, path, model="lengths", **body_of(path, long))
    assert said(answer, path, stream=False) == ("from the second", "second")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_a_full_queue_goes_to_the_next_model(
    gateway: RunningGateway, path: str, stream: bool
) -> None:
    slow = {"model": "first", "stream": True, "messages": [{"role": "user", "content": "slowly"}]}
    url = f"{gateway.base_url}/chat/completions"
    with httpx.stream("POST", url, json=slow, timeout=30) as running:
        lines = running.iter_lines()
        next(lines)  # closing it would close the connection
        answer = post(gateway, path, model="both", stream=stream, **body_of(path, "hello"))
        assert said(answer, path, stream=stream) == ("from the second", "second")
        full = post(gateway, path, model="dead", stream=stream, **body_of(path, "hello"))
        assert full.status_code == 429


@pytest.mark.parametrize("stream", [False, True])
def test_if_no_model_answers_the_failure_is_an_http_status(
    gateway: RunningGateway, stream: bool
) -> None:
    for path in PATHS:
        answer = post(gateway, path, model="alone", stream=False, **body_of(path, "fail"))
        assert answer.status_code == 500
    answer = post(gateway, "/chat/completions", model="alone", stream=stream, **body_of("", "fail"))
    assert answer.status_code == 500


@pytest.mark.parametrize("stream", [False, True])
def test_if_the_next_model_refuses_what_the_first_has_not_begun_the_refusal_is_an_http_status(
    gateway: RunningGateway, stream: bool
) -> None:
    for path in PATHS:
        body = body_of(path, "fail " + "and many words " * 20)
        answer = post(gateway, path, model="neither", stream=stream, **body)
        assert (answer.status_code, "leaves no room" in answer.text) == (400, True)


@pytest.mark.parametrize("how", ["fail", "busy"])  # when it runs, and before that
def test_a_background_response_keeps_its_id_and_one_dense_stream(
    gateway: RunningGateway, how: str
) -> None:
    body = {"model": "both", "input": how, "background": True, "stream": True}
    events = parse_sse(post(gateway, "/responses", **body).content)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:4]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.output_item.added",
    ]
    final = fold(events)
    assert (final["status"], final["model"]) == ("completed", "second")
    assert final["id"] == events[0]["response"]["id"]
    url = f"{gateway.base_url}/responses/{final['id']}"
    assert httpx.get(url).json() == final
    assert parse_sse(httpx.get(url, params={"stream": "true"}).content) == events


def test_several_choices_move_on_together(gateway: RunningGateway) -> None:
    body = body_of("/chat/completions", "fail")
    answer = post(gateway, "/chat/completions", model="both", n=3, stream=True, **body)
    text = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    by_index: dict[int, str] = {}
    for chunk in text:
        for choice in chunk["choices"]:
            index = choice["index"]
            by_index[index] = by_index.get(index, "") + (choice["delta"].get("content") or "")
    assert by_index == dict.fromkeys(range(3), "from the second")


def test_embeddings_move_on_too(gateway: RunningGateway) -> None:
    answer = post(gateway, "/embeddings", model="both", input=["crash"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == answer.headers["x-litegate-model"] == "second"


def test_a_router_chooses_the_models(gateway: RunningGateway) -> None:
    answer = post(gateway, "/responses", model="anything", input="fail")
    assert answer.json()["model"] == "second"
    [router] = [
        each for each in gateway.services.lookup.routing.routers if isinstance(each, OwnRouter)
    ]
    request = router.asked[-1]
    assert (request.api, request.model, request.owner) == ("responses", "anything", None)
    assert [load.name for load in request.models] == ["first", "short", "second"]
    assert post(gateway, "/responses", model="nothing", input="x").status_code == 404


def test_what_was_tried_is_counted(gateway: RunningGateway) -> None:
    post(gateway, "/responses", model="both", input="fail")
    metrics = httpx.get(gateway.base_url.removesuffix("/v1") + "/metrics").text
    assert 'gateway_fallbacks_total{model="first",next="second"} 1.0' in metrics
    assert 'gateway_responses_total{model="first",status="failed"} 1.0' in metrics
    assert 'gateway_responses_total{model="second",status="completed"} 1.0' in metrics


def test_a_websocket_shows_one_response_or_one_error(gateway: RunningGateway) -> None:
    from websockets.sync.client import connect

    url = gateway.base_url.replace("http://", "ws://") + "/responses"
    with connect(url) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "both", "input": "fail"}))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "response.completed":
            events.append(json.loads(socket.recv(timeout=30)))
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["model"] == "second"


@pytest.mark.parametrize(
    ("route", "sentence"),
    [
        ("models = []", "models"),
        ('models = ["m", "m"]', "twice"),
        ('models = ["m", "n"]', "is another name of a model before it"),
        ('models = ["m"]\nweights = [1, 2]', "2 numbers for 1 models"),
        ('models = ["m"]\nweights = [0]', "all 0"),
        ('models = ["m"]\nmodel = 1', "model"),
    ],
)
def test_a_mistake_in_a_route_stops_the_start(tmp_path: Path, route: str, sentence: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f'[models.m]\naliases = ["n"]\n[routes.r]\n{route}\n')
    with pytest.raises(ConfigurationError, match=r"routes\.r") as error:
        load_config(file, {})
    assert sentence in str(error.value)


def test_a_route_has_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[models.m]\naliases = ["n"]\n[routes.n]\nmodels = ["m"]\n')
    with pytest.raises(ConfigurationError, match="already a name of the model 'm'"):
        load_config(file, {})


def test_a_route_to_an_unknown_model_stops_the_start(gateway_server: StartGateway) -> None:
    config = {
        "models": {"m": {"engine": "scripted"}},
        "routes": {"r": {"models": ["m", "mm"]}},
    }
    with pytest.raises(ConfigurationError, match=r"routes\.r\.models\[1\].*did you mean \"m\""):
        gateway_server(config)


def test_a_limit_of_the_key_is_not_the_model_s_fault(
    gateway_server: StartGateway, tmp_path: Path
) -> None:
    """A key at its own limit is refused once: no other model is tried, and none is reached without being counted."""
    (tmp_path / "works.json").write_text(json.dumps(WORKS))
    key = "sk-limited"
    config = {
        "server": {
            "api_keys": [
                {
                    "name": "limited",
                    "sha256": hashlib.sha256(key.encode()).hexdigest(),
                    "requests_per_minute": 1,
                    "models": ["one", "two"],
                }
            ]
        },
        "models": {
            name: {"engine": "scripted", "path": "works.json"} for name in ("one", "two", "three")
        },
        "routes": {"r": {"models": ["one", "two"]}, "hidden": {"models": ["three"]}},
    }
    gateway = gateway_server(config, folder=tmp_path)
    client = httpx.Client(headers={"authorization": f"Bearer {key}"}, timeout=30)
    with client:
        hidden = client.post(
            f"{gateway.base_url}/responses", json={"model": "hidden", "input": "x"}
        )
        assert hidden.status_code == 404
        assert "three" not in hidden.text
        first = client.post(f"{gateway.base_url}/responses", json={"model": "r", "input": "x"})
        assert first.json()["model"] == "one"
        for path in PATHS:
            for stream in (False, True):
                body = {"model": "r", "stream": stream, **body_of(path, "x")}
                refused = client.post(f"{gateway.base_url}{path}", json=body)
                assert refused.status_code == 429, refused.text
    two: Any = gateway.services.models["two"].engine
    assert not two.requests
