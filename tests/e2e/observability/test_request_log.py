"""One line of the log at the end of each request, and the request's id on every other line of it."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gateway import hookimpl
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway
from tests.e2e.observability.conftest import ReadableLog

RULES = [
    {"when": "go slowly", "delay_ms": 20, "repeat": 300, "pieces": [{"text": "slow words "}]},
    {"when": "a few", "delay_ms": 5, "repeat": 5, "pieces": [{"text": "words "}]},
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins"}]},
    {"when": "think", "pieces": [{"reasoning": "Hm."}, {"text": "Yes."}]},
]
MODEL = {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": RULES}}
KEY = "sk-of-alice-0123456789"
SECRET_PROMPT = "the secret word is xylophone"


@pytest.fixture
def gateway(gateway_server: StartGateway) -> RunningGateway:
    return gateway_server({"models": {"m": MODEL}})


def root(gateway: RunningGateway) -> str:
    return gateway.base_url.removesuffix("/v1")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "api", "prefix"),
    [
        ("/v1/responses", {"input": "think"}, "responses", "resp_"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "think"}]}, "chat", "chatcmpl-"),
        ("/v1/completions", {"prompt": "think"}, "completions", "cmpl-"),
        ("/v1/messages", {"max_tokens": 99, "messages": [{"role": "user", "content": "think"}]}, "messages", ""),
    ],
)  # fmt: skip
def test_the_line_says_what_was_asked_and_how_it_ended(
    gateway: RunningGateway, log: ReadableLog, path: str, body: Any, api: str, prefix: str, stream: bool
) -> None:  # fmt: skip
    answer = httpx.post(root(gateway) + path, json={"model": "m", **body, "stream": stream})
    request_id = answer.headers["x-request-id"]
    [line] = log.until(1, message="request")
    assert line["request_id"] == request_id
    assert (line["method"], line["route"], line["status"]) == ("POST", path, 200)
    assert (line["run"], line["api"], line["model"]) == ("completed", api, "m")
    assert line.get("response_id", "").startswith(prefix)
    assert line["input_tokens"] > 0
    assert line["output_tokens"] > 0
    assert 0 <= line["queue_ms"] <= line["first_token_ms"] <= line["total_ms"]
    assert "client_left" not in line
    assert "error_code" not in line
    if prefix:
        assert line["response_id"] in answer.text


def test_a_refused_request_has_its_error_s_code(gateway: RunningGateway, log: ReadableLog) -> None:
    url = f"{gateway.base_url}/responses"
    httpx.post(url, json={"model": "m"})
    httpx.post(url, json={"model": "none", "input": "x"})
    httpx.get(f"{gateway.base_url}/nothing")
    lines = log.until(3, message="request")
    assert [(each["status"], each["error_code"]) for each in lines] == [
        (400, "missing_required_parameter"),
        (404, "model_not_found"),
        (404, "unknown_url"),
    ]
    assert lines[2]["route"] == "unmatched"


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/metrics", "/metrics"),
        ("/v1/gateway/models/", "/v1/gateway/models"),
        ("/v1/responses/resp_1/input_items", "/v1/responses/{response_id}/input_items"),
        ("/v1/models/a/b", "/v1/models/{model}"),
        ("/nothing", "unmatched"),
    ],
)
def test_a_refused_key_is_of_the_route_that_it_asked_for(
    gateway_server: StartGateway, log: ReadableLog, path: str, route: str
) -> None:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    server = {"api_keys": [{"name": "alice", "sha256": digest}], "metrics": ["alice"]}
    gateway = gateway_server({"server": server, "models": {"m": MODEL}})
    assert httpx.get(root(gateway) + path).status_code == 401
    [line] = log.until(1, message="request")
    assert (line["route"], line["status"]) == (route, 401)


def test_a_failed_run_has_its_error_s_code_though_its_status_is_200(
    gateway: RunningGateway, log: ReadableLog
) -> None:
    body = {"model": "m", "input": "break down", "stream": True}
    httpx.post(f"{gateway.base_url}/responses", json=body)
    [line] = log.until(1, message="request")
    assert (line["status"], line["run"], line["error_code"]) == (200, "failed", "server_error")


def test_a_client_that_left_is_noted(gateway: RunningGateway, log: ReadableLog) -> None:
    body = {"model": "m", "input": "go slowly", "stream": True}
    with httpx.stream("POST", f"{gateway.base_url}/responses", json=body) as answer:
        next(answer.iter_lines())
    [line] = log.until(1, message="request")
    assert (line["run"], line["client_left"]) == ("cancelled", True)


def test_a_background_run_has_a_line_of_its_own_with_the_same_id(
    gateway: RunningGateway, log: ReadableLog
) -> None:
    body = {"model": "m", "input": "a few", "background": True}
    made = httpx.post(f"{gateway.base_url}/responses", json=body)
    request_id = made.headers["x-request-id"]
    asked, ran = log.until(2, message="request", request_id=request_id)
    assert asked["route"] == "/v1/responses"
    assert "run" not in asked
    assert (ran["route"], ran["run"]) == ("background", "completed")
    assert asked["response_id"] == ran["response_id"] == made.json()["id"]
    assert ran["output_tokens"] > 0


def test_each_response_of_a_websocket_has_a_line(gateway: RunningGateway, log: ReadableLog) -> None:
    with connect(f"ws{gateway.base_url.removeprefix('http')}/responses") as socket:
        assert socket.response is not None
        connection = socket.response.headers["x-request-id"]
        for model in ("m", "none"):
            body = {"type": "response.create", "model": model, "input": "hello"}
            socket.send(json.dumps(body))
            while json.loads(socket.recv())["type"] not in ("response.completed", "error"):
                pass
    fine, refused = log.until(2, message="request", request_id=connection)
    assert (fine["method"], fine["run"], fine["api"]) == ("WEBSOCKET", "completed", "responses")
    assert refused["error_code"] == "model_not_found"


class Noisy:
    """A plugin that logs for every response."""

    __name__ = "gateway_noisy"

    @hookimpl
    def gateway_response_finished(self, response: Any) -> None:
        logging.getLogger("gateway.noisy").warning("seen %s", response.id)
        raise RuntimeError("broken observer")


@pytest.mark.parametrize("background", [False, True])
def test_every_line_of_a_request_has_its_id(
    gateway_server: StartGateway, log: ReadableLog, background: bool
) -> None:
    gateway = gateway_server({"models": {"m": MODEL}}, plugins=[Noisy()])
    body = {"model": "m", "input": "a few", "background": background}
    ids = [
        httpx.post(f"{gateway.base_url}/responses", json=body).headers["x-request-id"]
        for _ in range(3)
    ]
    log.until(6 if background else 3, message="request")
    for request_id in ids:
        noted = log.until(1, request_id=request_id, logger="gateway.noisy")
        assert len(noted) == 1
        [failed] = log.until(1, request_id=request_id, logger="gateway.answers.responses.output")
        assert "RuntimeError: broken observer" in failed["exception"]


def test_the_key_s_name_is_logged_and_neither_key_nor_prompt(
    gateway_server: StartGateway, log: ReadableLog
) -> None:
    keys = [{"name": "alice", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]
    gateway = gateway_server({"server": {"api_keys": keys}, "models": {"m": MODEL}})
    url = f"{gateway.base_url}/responses"
    body = {"model": "m", "input": SECRET_PROMPT}
    httpx.post(url, json=body, headers={"authorization": f"Bearer {KEY}"})
    httpx.post(url, json=body, headers={"authorization": "Bearer sk-wrong-0123456789"})
    fine, refused = log.until(2, message="request")
    assert fine["key"] == "alice"
    assert "key" not in refused
    assert (refused["status"], refused["error_code"]) == (401, "invalid_api_key")
    for secret in (KEY, "sk-wrong", "xylophone"):
        assert secret not in log.text


def test_probes_are_not_logged_and_the_line_can_be_turned_off(
    gateway_server: StartGateway, log: ReadableLog
) -> None:
    gateway = gateway_server({"server": {"access_log": False}, "models": {"m": MODEL}})
    httpx.post(f"{gateway.base_url}/responses", json={"model": "m", "input": "hello"})
    other = gateway_server({"models": {"m": MODEL}})
    for path in ("/health", "/ready", "/metrics"):
        assert httpx.get(root(other) + path).status_code == 200
    httpx.get(f"{other.base_url}/models/m")
    log.until(1, message="request", route="/v1/models/{model}")
    logged = {each["route"] for each in log.entries(message="request")}
    assert logged == {"/v1/models/{model}"}


def test_the_headers_of_openai_are_sent(gateway: RunningGateway) -> None:
    for answer in (
        httpx.post(f"{gateway.base_url}/responses", json={"model": "m", "input": "hello"}),
        httpx.post(f"{gateway.base_url}/responses", json={"model": "none", "input": "hello"}),
    ):
        assert int(answer.headers["openai-processing-ms"]) >= 0
        assert answer.headers["openai-version"] == "2020-10-01"


KEYS = [{"name": "alice", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]


@pytest.mark.parametrize("logged", [False, True])
def test_refused_keys_and_requests_have_the_client_s_address_if_it_is_logged(
    gateway_server: StartGateway, log: ReadableLog, logged: bool
) -> None:
    server = {
        "api_keys": KEYS,
        "log_client_address": logged,
        "trusted_proxies": ["127.0.0.1"] if logged else [],
    }
    gateway = gateway_server({"server": server, "models": {"m": MODEL}})
    url = f"{gateway.base_url}/responses"
    via = {"x-forwarded-for": "1.1.1.1, 203.0.113.7"}
    for key, headers in (("wrong", {}), ("wrong", via), (KEY, via)):
        sent = {"authorization": f"Bearer {key}", **headers}
        httpx.post(url, json={"model": "m", "input": "think"}, headers=sent)
    lines = log.until(3, message="request")
    assert [each["status"] for each in lines] == [401, 401, 200]
    addresses = ["127.0.0.1", "203.0.113.7", "203.0.113.7"] if logged else [None] * 3
    assert [each.get("client") for each in lines] == addresses


def test_refused_handshakes_of_websockets_are_logged_and_counted(
    gateway_server: StartGateway, log: ReadableLog
) -> None:
    """As requests with wrong keys are: keys could be guessed unseen."""
    server = {"api_keys": KEYS, "log_client_address": True}
    gateway = gateway_server({"server": server, "models": {"m": MODEL}})
    url = gateway.base_url.replace("http", "ws")
    wrong = {"authorization": "Bearer wrong"}
    with pytest.raises(InvalidStatus):
        connect(f"{url}/responses", additional_headers=wrong)
    with pytest.raises(InvalidStatus):
        connect(f"{url}/nothing", additional_headers=wrong)
    right = {"authorization": f"Bearer {KEY}"}
    with connect(f"{url}/responses", additional_headers=right) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "m", "input": "think"}))
        while json.loads(socket.recv(60))["type"] != "response.completed":
            pass
    lines = log.until(3, message="request")
    assert [(each["method"], each["route"], each.get("status")) for each in lines] == [
        ("WEBSOCKET", "/v1/responses", 401),
        ("WEBSOCKET", "unmatched", 404),
        ("WEBSOCKET", "/v1/responses", None),
    ]
    assert [each.get("error_code") for each in lines] == ["invalid_api_key", "unknown_url", None]
    assert {each["client"] for each in lines} == {"127.0.0.1"}
    metrics = httpx.get(f"{root(gateway)}/metrics").text
    assert 'gateway_requests_total{route="/v1/responses",status="401"} 1.0' in metrics
