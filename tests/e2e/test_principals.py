"""API keys as principals: allowed models and tools, limits in all APIs, keys that change."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI, RateLimitError
from websockets.sync.client import connect

from gateway.access.access import hash_key
from gateway_testing.grammar import parse_sse
from gateway_testing.server import RunningGateway, run_gateway, to_toml
from tests.waiting import wait_until

SCENARIO = str(Path(__file__).with_name("scenario.json"))
APIS: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/responses", {"model": "m", "input": "hi", "store": False}),
    "streamed responses": ("/responses", {"model": "m", "input": "hi", "stream": True}),
    "background": ("/responses", {"model": "m", "input": "hi", "background": True}),
    "chat": ("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    "streamed chat": (
        "/chat/completions",
        {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "completions": ("/completions", {"model": "m", "prompt": "hi"}),
    "messages": (
        "/messages",
        {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "streamed messages": (
        "/messages",
        {"model": "m", "max_tokens": 99, "stream": True, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "embeddings": ("/embeddings", {"model": "m", "input": "hi"}),
    "rerank": ("/rerank", {"model": "ranks", "query": "a", "documents": ["b"]}),
}  # fmt: skip


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_key(f"sk-{name}"), **fields}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = [
        key("free"),
        *(key(f"one {name}", requests_per_minute=1) for name in [*APIS, "socket", "sdk"]),
        key("few tokens", tokens_per_minute=60),
        key("small", models=["m", "alias-*"]),
        key("expired", expires="2020-01-01T00:00:00Z"),
        key("single", max_concurrent_requests=1),
    ]
    folder = tmp_path_factory.mktemp("principals")
    rules = json.loads(Path(SCENARIO).read_text())
    endless = {"when": "without end", "delay_ms": 50, "repeat": 10_000, "pieces": [{"text": "on "}]}
    (folder / "scenario.json").write_text(json.dumps([endless, *rules]))
    config = {
        "server": {"api_keys": keys},
        "models": {
            "m": {"engine": "scripted", "path": "scenario.json"},
            "other": {"engine": "scripted", "path": SCENARIO, "aliases": ["alias-1"]},
            "secret": {"engine": "scripted", "path": SCENARIO},
            "ranks": {"engine": "scripted", "scripted": {"task": "rerank"}},
        },
    }
    with run_gateway(config, folder) as running:
        yield running


def send(gateway: RunningGateway, name: str, path: str, body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer sk-{name}", "anthropic-version": "2023-06-01"}
    return httpx.post(f"{gateway.base_url}{path}", json=body, headers=headers, timeout=60)


@pytest.mark.parametrize("api", APIS)
def test_limits_hold_in_every_api(gateway: RunningGateway, api: str) -> None:
    path, body = APIS[api]
    first = send(gateway, f"one {api}", path, body)
    assert first.status_code == 200, first.text
    assert first.headers["x-ratelimit-limit-requests"] == "1"
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    second = send(gateway, f"one {api}", path, body)
    assert second.status_code == 429, second.text
    assert 1 <= int(second.headers["retry-after"]) <= 60
    assert second.headers["x-ratelimit-remaining-requests"] == "0"
    error = second.json()["error"]
    if "messages" in api:
        assert error["type"] == "rate_limit_error"
    else:
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert "Limit 1" in error["message"]


def test_without_limits_there_are_no_such_headers(gateway: RunningGateway) -> None:
    answer = send(gateway, "free", *APIS["chat"])
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


def test_the_sdk_knows_the_refusal(gateway: RunningGateway) -> None:
    with OpenAI(base_url=gateway.base_url, api_key="sk-one sdk", max_retries=0) as client:
        client.responses.create(model="m", input="hi")
        with pytest.raises(RateLimitError) as refused:
            client.responses.create(model="m", input="hi")
        assert refused.value.code == "rate_limit_exceeded"
        client.models.list()  # does not reach a model


@pytest.mark.parametrize("name", ["free", "small"])
def test_a_client_that_has_all_events_is_told_that_there_are_no_more(
    gateway: RunningGateway, name: str
) -> None:
    """Whoever lost the connection before `[DONE]` asks for what comes after the terminal event: its response is still stored."""
    body = {"model": "m", "input": "hi", "background": True, "stream": True}
    events = parse_sse(send(gateway, name, "/responses", body).content)
    url = f"{gateway.base_url}/responses/{events[-1]['response']['id']}"
    headers = {"authorization": f"Bearer sk-{name}"}
    for after in (events[-1]["sequence_number"], 10**6):
        query = {"stream": "true", "starting_after": str(after)}
        answer = httpx.get(url, params=query, headers=headers, timeout=60)
        assert answer.content == b"data: [DONE]\n\n"


def test_limits_hold_for_turns_of_a_websocket(gateway: RunningGateway) -> None:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    headers = {"authorization": "Bearer sk-one socket"}
    create = {"type": "response.create", "model": "m", "input": "hi"}
    with connect(url, additional_headers=headers) as socket:
        ends = []
        for _ in range(2):
            socket.send(json.dumps(create))
            while (event := json.loads(socket.recv(60)))["type"] not in (
                "response.completed",
                "error",
            ):
                pass
            ends.append(event)
    assert [end["type"] for end in ends] == ["response.completed", "error"]
    assert (ends[1]["status"], ends[1]["error"]["type"]) == (429, "requests")
    assert int(ends[1]["headers"]["retry-after"]) > 0


def test_tokens_are_counted_as_they_were_used(gateway: RunningGateway) -> None:
    body = {"model": "m", "prompt": "hi", "max_tokens": 1}
    answer = send(gateway, "few tokens", "/completions", body)
    assert answer.status_code == 200
    used = answer.json()["usage"]["total_tokens"]
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) <= 60 - used
    refused = send(gateway, "few tokens", "/completions", {**body, "prompt": "x " * 500})
    assert refused.status_code == 429
    assert refused.json()["error"]["type"] == "tokens"
    assert "too large" in refused.json()["error"]["message"]


def test_a_principal_uses_the_models_that_it_may(gateway: RunningGateway) -> None:
    def status(model: str, path: str = "/chat/completions") -> int:
        body = {**APIS["chat"][1], "model": model, "max_tokens": 5}
        return send(gateway, "small", path, body).status_code

    assert (status("m"), status("alias-1"), status("other")) == (200, 200, 200)
    refused = send(gateway, "small", "/chat/completions", {**APIS["chat"][1], "model": "secret"})
    missing = send(gateway, "small", "/chat/completions", {**APIS["chat"][1], "model": "nothing"})
    assert refused.status_code == missing.status_code == 404
    assert refused.json()["error"]["code"] == "model_not_found"
    assert refused.json() == json.loads(missing.text.replace("nothing", "secret"))
    assert status("secret", "/messages") == 404
    headers = {"authorization": "Bearer sk-small"}
    listed = httpx.get(f"{gateway.base_url}/models", headers=headers).json()["data"]
    assert [model["id"] for model in listed] == ["m", "other"]
    assert httpx.get(f"{gateway.base_url}/models/secret", headers=headers).status_code == 404
    answer = send(gateway, "small", "/rerank", APIS["rerank"][1])
    assert answer.status_code == 404


def test_an_expired_key_is_401(gateway: RunningGateway) -> None:
    answer = send(gateway, "expired", *APIS["chat"])
    assert answer.status_code == 401
    assert "expired" in answer.json()["error"]["message"]


def test_running_requests_are_limited_until_their_clients_leave(gateway: RunningGateway) -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "without end"}]}
    headers = {"authorization": "Bearer sk-single"}
    with httpx.stream(
        "POST", f"{gateway.base_url}/chat/completions", json=body, headers=headers, timeout=60
    ) as stream:
        lines = stream.iter_lines()  # closing it would close the connection
        next(lines)
        refused = send(gateway, "single", *APIS["chat"])
        assert refused.status_code == 429
        assert "concurrent" in refused.json()["error"]["message"]
    wait_until(lambda: send(gateway, "single", *APIS["chat"]).status_code == 200)


def test_a_failed_request_no_longer_runs(gateway: RunningGateway) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "be down"}]}

    def status() -> int | None:
        found = send(gateway, "single", "/chat/completions", body).status_code
        return None if found == 429 else found

    assert wait_until(status, "an earlier request no longer counts") == 503
    wait_until(lambda: send(gateway, "single", *APIS["chat"]).status_code == 200)


def test_a_keys_file_is_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(to_toml({"api_keys": [key("ada")]}))
    config = {
        "server": {"keys_file": "keys.toml"},
        "models": {"m": {"engine": "scripted", "path": SCENARIO}},
    }
    with run_gateway(config, tmp_path) as gateway:

        def status(name: str) -> int:
            headers = {"authorization": f"Bearer sk-{name}"}
            return httpx.get(f"{gateway.base_url}/models", headers=headers).status_code

        def until(name: str, wanted: int) -> None:
            wait_until(lambda: status(name) == wanted, f"{name}: {wanted}")

        assert (status("ada"), status("bob")) == (200, 401)
        path.write_text(to_toml({"api_keys": [key("bob")]}))
        until("bob", 200)
        assert status("ada") == 401
        path.write_text("this is not TOML")
        time.sleep(0.6)  # whether it was read by now or not, the keys hold
        assert status("bob") == 200
        path.write_text("a = " + "[" * 10_000)
        wait_until(lambda: "nested too deeply" in caplog.text, "the file was read")
        assert status("bob") == 200
        path.write_text("")
        until("bob", 401)
        assert httpx.get(f"{gateway.base_url}/models").status_code == 401
