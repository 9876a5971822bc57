"""What a client may try to get around the limits and the permissions of its key."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from gateway.access.access import hash_key
from gateway.config import ApiKey
from gateway_testing.server import RunningGateway, run_gateway
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
                *(key(f"once{n}", requests_per_minute=1) for n in range(4)),
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


BAD_PART = {"url": "data:image/png;base64,AAAA"}
UNREADABLE: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": BAD_PART}]}]},
    "/responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": BAD_PART["url"]}]}]},
    "/completions": {"prompt": "a", "guided_json": {"type": "no type"}},
    "/messages": {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}]},
}  # fmt: skip


@pytest.mark.parametrize("path", UNREADABLE)
def test_a_key_that_has_reached_its_limit_has_nothing_read_or_compiled(
    gateway: RunningGateway, path: str
) -> None:
    """It is told so before what it sends is looked at more closely."""
    name = f"once{list(UNREADABLE).index(path)}"
    headers = {"authorization": f"Bearer sk-{name}", "anthropic-version": "2023-06-01"}

    def ask() -> httpx.Response:
        body = {"model": "m", **UNREADABLE[path]}
        return httpx.post(gateway.base_url + path, json=body, headers=headers, timeout=60)

    first = ask()
    assert 400 <= first.status_code < 429, "it cannot be answered, and is not counted"
    assert send(gateway, name, chat("hi")).status_code == 200
    assert send(gateway, name, chat("hi")).status_code == 429
    refused = ask()
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0


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


def counted_runs(gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The runs that are counted from now on, and whose they are."""
    counted: list[tuple[Any, Any]] = []
    usage = gateway.services.usage
    count = usage.run_finished
    monkeypatch.setattr(
        usage,
        "run_finished",
        lambda run, by, **given: (counted.append((run, by)), count(run, by, **given)),
    )
    return counted


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_while_its_response_is_stored_has_used_it(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """It has all of the text by then. The response is stored, and counts in metrics and usage."""
    store: Any = gateway.services.store
    put, begun, stored = store.put, threading.Event(), []

    async def slow_put(record: Any) -> None:
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()  # until the client has left
        await put(record)
        stored.append(record.id)

    ended = counted_runs(gateway, monkeypatch)
    monkeypatch.setattr(store, "put", slow_put)
    body = json.dumps({"model": "m", "input": "hello", "stream": stream}).encode()
    parts = urlsplit(gateway.base_url)
    with closing(socket.create_connection((parts.hostname, parts.port), timeout=60)) as client:
        client.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-leaver\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        assert begun.wait(60)
    wait_until(lambda: bool(ended))
    [(run, principal)] = ended
    assert (run.status, principal.name) == ("completed", "leaver")
    assert run.usage.output_tokens > 0
    assert stored == [run.response_id]


def test_a_response_that_is_deleted_before_its_end_was_used(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = counted_runs(gateway, monkeypatch)
    body = {"model": "m", "input": "without end", "stream": True, "background": True}
    headers = {"authorization": "Bearer sk-leaver"}
    url = f"{gateway.base_url}/responses"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and '"delta"' in line:
                break
            if '"response.created"' in line and line.startswith("data:"):
                response_id = json.loads(line[5:])["response"]["id"]
    assert httpx.delete(f"{url}/{response_id}", headers=headers, timeout=60).status_code == 200
    wait_until(lambda: bool(ended))
    [(run, principal)] = ended
    assert (run.status, run.response_id, principal.name) == ("cancelled", response_id, "leaver")
    assert run.usage.output_tokens > 0
