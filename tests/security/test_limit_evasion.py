"""What a client may try to get around the limits and the permissions of its key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from gateway.config import ApiKey
from gateway.runtime.access import hash_key
from gateway.testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

RULES = [{"when": "without end", "delay_ms": 5, "repeat": 10_000, "pieces": [{"text": "on "}]}]
LIMIT = 100_000


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_key(f"sk-{name}"), **fields}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("evasion")
    (folder / "scenario.json").write_text(json.dumps(RULES))
    config = {
        "server": {
            "api_keys": [
                key("leaver", tokens_per_day=LIMIT),
                key("chooser", tokens_per_minute=1000),
                key("narrow", models=["m"]),
            ]
        },
        "models": {
            "m": {"engine": "scripted", "path": "scenario.json"},
            "M": {"engine": "scripted", "path": "scenario.json"},
        },
    }
    with run_gateway(config, folder) as running:
        yield running


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def send(gateway: RunningGateway, name: str, body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer sk-{name}"}
    return httpx.post(
        f"{gateway.base_url}/chat/completions", json=body, headers=headers, timeout=60
    )


def day_tokens(gateway: RunningGateway, name: str) -> int:
    store: Any = gateway.services.store
    counters = store._limits._principals.get(name)
    return 0 if counters is None else counters.day_tokens


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages"])
def test_a_client_that_leaves_has_used_what_was_made(gateway: RunningGateway, path: str) -> None:
    before = day_tokens(gateway, "leaver")
    body = chat("without end", stream=True, max_tokens=5000)
    if path == "/responses":
        body = {"model": "m", "input": "without end", "stream": True}
    headers = {"authorization": "Bearer sk-leaver", "anthropic-version": "2023-06-01"}
    url = gateway.base_url + path
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as stream:
        lines, read = stream.iter_lines(), 0
        while read < 90:
            read += next(lines).startswith("data:")
    wait_until(lambda: not gateway.services.limiter._running)
    # The prompt and, with max_tokens, 5000 tokens were counted at the beginning, and what was used at the end.
    wait_until(lambda: 20 < day_tokens(gateway, "leaver") - before < 5000)


def test_choices_count_when_the_request_begins(gateway: RunningGateway) -> None:
    answer = send(gateway, "chooser", chat("hi", n=8, max_tokens=100))
    assert answer.status_code == 200
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) <= 200


@pytest.mark.parametrize("name", ["M", "m ", " m", "m\u0000", "*", "[m]", "?", "m*"])
def test_a_model_of_a_similar_name_is_another_one(gateway: RunningGateway, name: str) -> None:
    assert send(gateway, "narrow", {**chat("hi"), "model": name}).status_code == 404


def test_a_revoked_key_has_no_further_turn_on_its_connection(gateway: RunningGateway) -> None:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    create = json.dumps({"type": "response.create", "model": "m", "input": "hi"})
    authenticator = gateway.services.authenticator

    def turn(socket: Any) -> dict[str, Any]:
        socket.send(create)
        while (event := json.loads(socket.recv(60)))["type"] not in ("response.completed", "error"):
            pass
        return dict(event)

    authenticator.use_keys("test", [ApiKey(name="gone", sha256=hash_key("sk-gone"))])
    with connect(url, additional_headers={"authorization": "Bearer sk-gone"}) as socket:
        assert turn(socket)["type"] == "response.completed"
        authenticator.use_keys("test", [])
        refused = turn(socket)
    assert (refused["type"], refused["status"]) == ("error", 401)


def test_a_mistake_in_the_keys_file_shows_no_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("")
    config = {
        "server": {"keys_file": str(path)},
        "models": {"m": {"engine": "scripted"}},
    }
    secret = hash_key("sk-secret")
    with run_gateway(config, tmp_path):
        path.write_text(f'[[api_keys]]\nname = "ada"\nsha256 = "{secret}!"\n')
        wait_until(lambda: "stay as they were" in caplog.text)
    assert secret not in caplog.text
