"""Models are loaded for the requests that need them, and unloaded, while the server runs."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

SLOW = [{"when": "slowly", "pieces": [{"text": "tick "}], "repeat": 300, "delay_ms": 8}]


def model(**settings: Any) -> dict[str, Any]:
    return {
        "engine": "scripted",
        "load": "on_demand",
        "scripted": {"rules": SLOW, **settings.pop("scripted", {})},
        **settings,
    }


class Client:
    def __init__(self, running: RunningGateway) -> None:
        self.running = running
        self.http = httpx.Client(base_url=running.base_url.removesuffix("/v1"), timeout=60)

    def state(self, name: str) -> str:
        return str(self.http.get(f"/v1/models/{name}").json()["state"])

    def respond(self, name: str, text: str = "Hi", **body: Any) -> httpx.Response:
        return self.http.post("/v1/responses", json={"model": name, "input": text, **body})


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    opened: list[Any] = []

    def start(models: dict[str, Any], **server: Any) -> Client:
        apis = server.pop("apis", {})
        context = run_gateway({"server": server, "models": models, "apis": apis}, tmp_path)
        running = context.__enter__()
        client = Client(running)
        opened.extend([context, client.http])
        return client

    yield start
    for each in reversed(opened):
        each.__exit__(None, None, None)


def test_every_api_loads_the_model_that_it_needs(serve: Callable[..., Client]) -> None:
    both = {
        "m": model(aliases=["alias"]),
        "e": model(scripted={"task": "embed"}),
        "r": model(scripted={"task": "rerank"}),
    }
    client = serve(both)
    slots = client.running.services.slots.slots
    messages = [{"role": "user", "content": "Hi"}]
    for path, body in (
        ("/v1/responses", {"model": "alias", "input": "Hi"}),
        ("/v1/responses/input_tokens", {"model": "m", "input": "Hi"}),
        ("/v1/responses/compact", {"model": "m", "input": "Hi"}),
        ("/v1/responses", {"model": "m", "input": "Hi", "background": True}),
        ("/v1/chat/completions", {"model": "m", "messages": messages}),
        ("/v1/completions", {"model": "m", "prompt": "Hi"}),
        ("/v1/messages", {"model": "m", "messages": messages, "max_tokens": 9}),
        ("/v1/messages/count_tokens", {"model": "m", "messages": messages}),
        ("/tokenize", {"model": "m", "prompt": "Hi"}),
        ("/detokenize", {"model": "m", "tokens": []}),
        ("/v1/embeddings", {"model": "e", "input": "Hi"}),
        ("/v1/rerank", {"model": "r", "query": "Hi", "documents": ["Ho"]}),
        ("/v1/score", {"model": "r", "text_1": "Hi", "text_2": "Ho"}),
    ):
        name = "m" if body["model"] == "alias" else body["model"]
        answer = client.http.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        assert slots[name].state == "loaded", path
        wait_until(lambda name=name: slots[name].is_idle)
        assert client.http.post(f"/v1/models/{name}/unload").json()["state"] == "unloaded"


def test_without_a_name_the_only_model_is_loaded(serve: Callable[..., Client]) -> None:
    client = serve({"m": model()})
    assert client.state("m") == "unloaded"
    assert client.http.get("/ready").json() == {"status": "ready", "models": {"m": "unloaded"}}
    assert client.http.post("/v1/responses", json={"input": "Hi"}).json()["model"] == "m"
    assert client.state("m") == "loaded"
    assert client.http.get("/ready").json() == {"status": "ready"}


def test_a_stream_tells_nothing_until_its_model_is_loaded(
    serve: Callable[..., Client], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    client = serve(
        {"m": model(scripted={"opening_waits_while": str(gate)}), "other": model(load="start")}
    )
    begun = threading.Event()

    def stream() -> str:
        body = {"model": "m", "input": "Hi", "stream": True}
        with client.http.stream("POST", "/v1/responses", json=body) as answer:
            begun.set()
            return answer.read().decode()

    slot = client.running.services.slots.slots["m"]
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(stream) for _ in range(2)]
        wait_until(lambda: slot.waiting == 2)
        assert client.state("m") == "loading"
        assert client.respond("other").status_code == 200, "others are served meanwhile"
        assert not begun.is_set()
        gate.unlink()
        for each in both:
            assert "response.completed" in each.result(60)


PATHS = ("responses", "background", "chat/completions", "completions", "messages")


def asked(path: str, **body: Any) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request for a stream of the model `m`."""
    match path:
        case "responses":
            body["input"] = "Hi"
        case "background":
            path, body["input"], body["background"] = "responses", "Hi", True
        case "completions":
            body["prompt"] = "Hi"
        case _:
            body["messages"] = [{"role": "user", "content": "Hi"}]
    if path == "messages":
        body["max_tokens"] = 99
    return f"/v1/{path}", {"model": "m", "stream": True, **body}


def counted(events: bytes) -> int:
    """How many events there are without pings, which a busy machine sends."""
    return events.count(b"\n\n") - events.count(b"event: ping")


COMMENT = b": keep-alive\n\n"


@pytest.fixture
def serve_slow(
    serve: Callable[..., Client], tmp_path: Path
) -> Callable[..., tuple[Client, Path, Path]]:
    def start(**server: Any) -> tuple[Client, Path, Path]:
        gate, lock = tmp_path / "gate", tmp_path / "secret-lock"
        gate.touch()
        slow = {"opening_waits_while": str(gate), "opening_fails_while": str(lock)}
        apis = {"messages": {"ping_interval": 0.02}}
        started = serve({"m": model(scripted=slow)}, apis=apis, ping_interval=0.02, **server)
        return started, gate, lock

    return start


@pytest.mark.parametrize("cors", [[], ["https://app.example"]], ids=["direct", "routed"])
def test_a_stream_is_kept_open_while_its_model_is_loaded(
    serve_slow: Callable[..., tuple[Client, Path, Path]], cors: list[str]
) -> None:
    client, gate, _ = serve_slow(cors_allow_origins=cors)
    for path in PATHS:
        wait_until(lambda: client.running.services.slots.slots["m"].is_idle)
        client.http.post("/v1/models/m/unload")
        gate.touch()
        wait_for_model(client, gate, path)


def wait_for_model(client: Client, gate: Path, path: str) -> None:
    """Stream from a model that is not loaded."""
    url, body = asked(path)
    with client.http.stream("POST", url, json=body) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-request-id"]
        pieces = answer.iter_raw()
        begun = b""
        while begun.count(COMMENT) < 3:
            begun += next(pieces)
        assert not begun.replace(COMMENT, b"")
        gate.unlink()
        rest = b"".join(pieces).replace(COMMENT, b"")
    end = {"messages": b'{"type":"message_stop"}\n\n'}.get(path, b"data: [DONE]\n\n")
    assert rest.endswith(end)
    if url == "/v1/responses":
        assert fold(parse_sse(rest))["status"] == "completed"
    with client.http.stream("POST", url, json=body) as again:
        whole = again.read().replace(COMMENT, b"")
    assert counted(whole) == counted(rest), "the same events as without a wait"


@pytest.mark.parametrize("cors", [[], ["https://app.example"]], ids=["direct", "routed"])
def test_a_load_that_fails_after_the_stream_has_begun_is_told_in_it(
    serve_slow: Callable[..., tuple[Client, Path, Path]], cors: list[str]
) -> None:
    client, gate, lock = serve_slow(cors_allow_origins=cors)
    lock.touch()
    for path in PATHS:
        gate.touch()
        client.running.services.slots.slots["m"].retry_at = 0.0
        wait_in_vain(client, gate, path)


def wait_in_vain(client: Client, gate: Path, path: str) -> None:
    """Stream from a model that cannot be loaded."""
    url, body = asked(path)
    with client.http.stream("POST", url, json=body) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_raw()
        begun = next(pieces)
        gate.unlink()
        told = (begun + b"".join(pieces)).replace(COMMENT, b"")
    assert b"secret-lock" not in told
    match path:
        case "responses" | "background":
            events = parse_sse(told)
            assert [each["sequence_number"] for each in events] == [0, 1, 2]
            assert [each["type"] for each in events] == [
                "response.created", "response.in_progress", "response.failed"
            ]  # fmt: skip
            final = fold(events)
            assert (final["status"], final["model"]) == ("failed", "m")
            assert "could not be opened" in final["error"]["message"]
            assert client.http.get(f"/v1/responses/{final['id']}").status_code == 404
        case "messages":
            kind, data = told.removesuffix(b"\n\n").split(b"\n")
            assert kind == b"event: error"
            assert json.loads(data.removeprefix(b"data: "))["error"]["type"] == "overloaded_error"
        case _:
            error, done = told.removesuffix(b"\n\n").split(b"\n\n")
            assert (
                json.loads(error.removeprefix(b"data: "))["error"]["code"] == "engine_unavailable"
            )
            assert done == b"data: [DONE]"
    answer = client.http.post(url, json=body)
    assert answer.status_code == (529 if path == "messages" else 503), "a status again: it is known"


def test_the_official_client_is_told_of_a_load_that_failed(
    serve_slow: Callable[..., tuple[Client, Path, Path]],
) -> None:
    client, gate, lock = serve_slow()
    lock.touch()
    with client.running.client() as sdk:
        stream = sdk.responses.create(model="m", input="Hi", stream=True)
        gate.unlink()
        last = [*stream][-1]
    assert last.type == "response.failed"
    assert "could not be opened" in str(last.response.error)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_does_not_wait_on(
    serve: Callable[..., Client], tmp_path: Path, path: str, stream: bool
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    client = serve({"m": model(scripted={"opening_waits_while": str(gate)})}, ping_interval=0.02)
    slot = client.running.services.slots.slots["m"]
    _, asks = asked(path.removeprefix("/v1/"), stream=stream)
    body = json.dumps(asks).encode()
    url = client.http.base_url
    with socket.create_connection((url.host, url.port or 80)) as leaving:
        leaving.sendall(
            b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
        )
        wait_until(lambda: slot.waiting == 1)
    wait_until(lambda: slot.waiting == 0)
    gate.unlink()
    wait_until(lambda: slot.state == "loaded")
    wait_until(lambda: slot.is_idle)


def test_a_model_that_fails_is_told_in_a_sentence_and_loaded_when_it_can_be(
    serve: Callable[..., Client], tmp_path: Path
) -> None:
    lock = tmp_path / "secret-lock"
    lock.touch()
    client = serve({"m": model(scripted={"opening_fails_while": str(lock)})})
    answer = client.respond("m", stream=True)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "could not be opened" in answer.json()["error"]["message"]
    assert "secret-lock" not in answer.text
    assert client.state("m") == "failed"
    told = client.http.post("/v1/models/m/load")
    assert told.status_code == 503
    assert "secret-lock" in told.json()["error"]["message"], "an administrator is told the reason"
    lock.unlink()
    client.running.services.slots.slots["m"].retry_at = 0.0
    assert client.respond("m").status_code == 200
    assert 'gateway_model_state{model="m",state="loaded"} 1.0' in client.http.get("/metrics").text


def test_a_model_that_is_not_required_is_tried_again(
    serve: Callable[..., Client], tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    fails = {"opening_fails_while": str(lock)}
    client = serve(
        {"m": model(load="start", required=False, scripted=fails), "other": model(load="start")}
    )
    assert client.state("m") == "failed"
    lock.unlink()
    client.running.services.slots.slots["m"].retry_at = 0.0
    assert client.respond("m").status_code == 200


@pytest.mark.slow
def test_unloading_during_a_stream_lets_it_end(serve: Callable[..., Client]) -> None:
    client = serve({"m": model()})
    body = {"model": "m", "input": "slowly", "stream": True}
    with client.http.stream("POST", "/v1/responses", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("event: response.created")
        assert client.http.post("/v1/models/m/unload").json()["state"] == "unloading"
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(client.respond, "m")
            rest = "\n".join(lines)
            assert "response.completed" in rest
            assert rest.count("tick") >= 300
            assert late.result(60).status_code == 200, "it waited, and loaded the model again"
    assert client.state("m") == "loaded"


def test_loading_one_model_unloads_the_least_recently_used(serve: Callable[..., Client]) -> None:
    client = serve({name: model() for name in "abc"}, max_loaded=2)
    for name in "abac":
        assert client.respond(name).status_code == 200
        slot = client.running.services.slots.slots[name]
        wait_until(lambda slot=slot: slot.is_idle)
    assert [client.state(name) for name in "abc"] == ["loaded", "unloaded", "loaded"]


def test_an_idle_model_is_unloaded_and_comes_back(serve: Callable[..., Client]) -> None:
    client = serve({"m": model(idle_unload=0.05)})
    for _ in range(2):
        assert client.respond("m").status_code == 200
        wait_until(lambda: client.state("m") == "unloaded")


def test_a_model_is_deleted(serve: Callable[..., Client]) -> None:
    client = serve({"org/m": model(aliases=["alias"]), "other": model()})
    assert client.respond("org/m").status_code == 200
    answer = client.http.delete("/v1/models/org/m")
    assert answer.json() == {"id": "org/m", "object": "model", "deleted": True}
    for name in ("org/m", "alias"):
        assert client.respond(name).status_code == 404
        assert client.http.post(f"/v1/models/{name}/load").status_code == 404
    assert [each["id"] for each in client.http.get("/v1/models").json()["data"]] == ["other"]


def test_only_administrators_change_models(serve: Callable[..., Client]) -> None:
    keys = [
        {"name": "user", "sha256": hashlib.sha256(b"key-user").hexdigest()},
        {"name": "root", "sha256": hashlib.sha256(b"key-root").hexdigest(), "admin": True},
    ]
    client = serve({"m": model()}, api_keys=keys)
    for method, path in (
        ("POST", "/v1/models/m/load"),
        ("POST", "/v1/models/m/unload"),
        ("DELETE", "/v1/models/m"),
        ("POST", "/v1/models/unknown/load"),
    ):
        for key, status in (("key-user", 403), ("wrong", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert client.http.request(method, path, headers=headers).status_code == status
    assert client.running.services.slots.slots["m"].state == "unloaded"
    root = {"authorization": "Bearer key-root"}
    assert client.http.post("/v1/models/m/load", headers=root).json()["state"] == "loaded"


def test_other_paths_below_a_model_are_told(serve: Callable[..., Client]) -> None:
    client = serve({"m": model()})
    for path in ("/v1/models/m", "/v1/models/m/reload", "/v1/models/load"):
        assert client.http.post(path).status_code == 405
