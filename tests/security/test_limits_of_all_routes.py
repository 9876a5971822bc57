"""Limits of keys hold on every route that works for a request, and are asked before the work."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from gateway.access.access import hash_key
from gateway.base.errors import RateLimited
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

TOO_LONG = "many words " * 200
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
UNREADABLE: dict[str, dict[str, Any]] = {
    "/embeddings": {"model": "vectors", "input": TOO_LONG},
    "/rerank": {"model": "ranks", "query": "x", "documents": ["y"], "truncate_prompt_tokens": 5},
    "/score": {"model": "ranks", "text_1": "x", "text_2": "y", "truncate_prompt_tokens": 5},
    "/responses/compact": {"model": "m", "input": [{"role": "user", "content": [IMAGE]}]},
    "websocket": {"model": "m", "input": [{"role": "user", "content": [IMAGE]}]},
}
"""Requests that cannot be answered, which shows only as they are prepared."""
NO_MODEL = ["files", "uploads", "parts", "vector_stores", "search", "containers"]


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_key(f"sk-{name}"), **fields}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    names = [*(f"once{n}" for n in range(len(UNREADABLE))), *NO_MODEL]
    names += [f"background{each}" for each in (False, True)]
    config = {
        "server": {
            "api_keys": [
                key("free"),
                key("batches", requests_per_minute=2),
                *(key(name, requests_per_minute=1) for name in names),
            ]
        },
        "models": {
            "m": {"engine": "scripted"},
            "vectors": {
                "engine": "scripted",
                "max_model_len": 90,
                "scripted": {"task": "embed"},
            },
            "ranks": {"engine": "scripted", "max_model_len": 90, "scripted": {"task": "rerank"}},
        },
        "tools": {"file_search": {}},
        "apis": {"batches": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("limits")) as running:
        yield running


def client(gateway: RunningGateway, name: str) -> httpx.Client:
    headers = {"authorization": f"Bearer sk-{name}"}
    return httpx.Client(base_url=gateway.base_url, headers=headers, timeout=60)


def asked(gateway: RunningGateway, name: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """The status and the code of the error."""
    if path != "websocket":
        with client(gateway, name) as http:
            answer = http.post(path, json=body)
            return answer.status_code, answer.text
    url = gateway.base_url.replace("http", "ws") + "/responses"
    with connect(url, additional_headers={"authorization": f"Bearer sk-{name}"}) as socket:
        socket.send(json.dumps({"type": "response.create", **body}))
        event = json.loads(socket.recv(60))
        return event.get("status", 200), json.dumps(event)


@pytest.mark.parametrize("path", UNREADABLE)
def test_a_key_at_its_limit_has_nothing_prepared(gateway: RunningGateway, path: str) -> None:
    name, body = f"once{list(UNREADABLE).index(path)}", UNREADABLE[path]
    status, text = asked(gateway, name, path, body)
    assert 400 <= status < 429, text
    hello = {"model": "m", "input": "hi"}
    assert asked(gateway, name, "/responses", hello)[0] == 200
    assert asked(gateway, name, "/responses", hello)[0] == 429
    status, text = asked(gateway, name, path, body)
    assert (status, "rate_limit" in text) == (429, True), text


def upload(http: httpx.Client) -> httpx.Response:
    sent = {"file": ("a.txt", b"some words")}
    return http.post("/files", files=sent, data={"purpose": "user_data"})


def begin(http: httpx.Client) -> httpx.Response:
    body = {"filename": "a", "purpose": "user_data", "bytes": 1, "mime_type": "text/plain"}
    return http.post("/uploads", json=body)


@pytest.mark.parametrize("route", NO_MODEL[:-1])
def test_requests_that_run_no_model_count_and_looking_does_not(
    gateway: RunningGateway, route: str
) -> None:
    with client(gateway, route) as http:
        works: Any = {
            "files": lambda: upload(http),
            "uploads": lambda: begin(http),
            "parts": lambda: http.post("/uploads/upload_1/parts", files={"data": b"x"}),
            "vector_stores": lambda: http.post("/vector_stores", json={}),
            "search": lambda: http.post("/vector_stores/vs_1/search", json={"query": "x"}),
        }[route]
        first = works()
        assert first.status_code in (200, 404), first.text
        refused = works()
        assert refused.status_code == 429, refused.text
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
        assert int(refused.headers["retry-after"]) > 0
        for path in ("/files", "/vector_stores", "/models"):
            assert http.get(path).status_code == 200, path
        # The results of a batch, which may have used all requests of the key.
        assert http.get("/files/file_1/content").status_code == 404


def test_a_refused_upload_or_search_is_not_done(gateway: RunningGateway) -> None:
    with client(gateway, "free") as http:
        many = [upload(http) for _ in range(3)]
        assert {each.status_code for each in many} == {200}
    with client(gateway, "containers") as http:
        assert upload(http).status_code == 200
        assert upload(http).status_code == 429
        wait_until(lambda: len(http.get("/files").json()["data"]) == 1)


ANSWERED_AT_THE_LIMIT = {
    ("post", "/v1/responses/{response_id}/cancel"): "ends what runs",
    ("post", "/v1/batches/{batch}/cancel"): "ends what runs",
    ("post", "/v1/uploads/{upload}/cancel"): "ends what was begun",
    ("post", "/v1/vector_stores/{store}/file_batches/{batch}/cancel"): "ends what runs",
    ("post", "/v1/gateway/runs/{run_id}/cancel"): "ends what runs",
    ("post", "/v1/gateway/tools/probe"): "for administrators",
    ("post", "/v1/load_lora_adapter"): "for administrators",
    ("post", "/v1/unload_lora_adapter"): "for administrators",
    ("post", "/v1/models/{action}"): "for administrators",
    ("delete", "/v1/models/{model}"): "for administrators",
}
"""Routes that change something and do not count, with the reason."""
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/responses/compact": {"model": "m", "input": "hi"},
    "/v1/embeddings": {"model": "vectors", "input": "hi"},
    "/v1/messages": {**CHAT, "max_tokens": 1},
    "/v1/messages/count_tokens": CHAT,
    **{
        path: {"model": "ranks", "query": "x", "documents": ["y"]}
        for path in ("/v1/rerank", "/v2/rerank", "/rerank")
    },
    **{path: {"model": "ranks", "text_1": "x", "text_2": "y"} for path in ("/v1/score", "/score")},
}
"""Bodies of routes that read them before they ask for limits; to others, `{}` is sent."""


def test_each_route_that_changes_something_counts_or_says_why_not(
    tmp_path: Path,
) -> None:
    """All routes of `/openapi.json`, also those of plugins. A new one counts (`Route.counted`, `counts`), or is listed above."""
    config = {
        "server": {"api_keys": [key("spent", requests_per_minute=1), key("free")]},
        "models": {
            "m": {"engine": "scripted"},
            "vectors": {"engine": "scripted", "scripted": {"task": "embed"}},
            "ranks": {"engine": "scripted", "scripted": {"task": "rerank"}},
        },
        "tools": {"file_search": {}, "container": {}},
        "apis": {"batches": {}, "prompts": {}, "messages": {}, "console": {}},
    }
    with run_gateway(config, tmp_path) as gateway, client(gateway, "spent") as http:
        root = gateway.base_url.removesuffix("/v1")
        paths = http.get(f"{root}/openapi.json").json()["paths"]
        routes = {(method, path) for path in paths for method in paths[path]} - {
            (method, path) for path in paths for method in paths[path] if method in ("get", "head")
        }
        assert {"put", "post", "delete"} == {method for method, _ in routes}
        assert http.post("/responses", json=BODIES["/v1/responses"]).status_code == 200

        def status(method: str, path: str) -> int:
            url = root + re.sub(r"\{[^}]*\}", "x", path)
            return http.request(method, url, json=BODIES.get(path, {})).status_code

        answered = {route for route in routes if status(*route) != 429}
        assert answered == set(ANSWERED_AT_THE_LIMIT)


@pytest.mark.parametrize("background", [False, True])
def test_a_key_at_its_limit_begins_no_background_response(
    gateway: RunningGateway, background: bool
) -> None:
    body = {**UNREADABLE["/responses/compact"], "background": background}
    with client(gateway, f"background{background}") as http:
        assert 400 <= http.post("/responses", json=body).status_code < 429
        assert http.post("/responses", json={"model": "m", "input": "hi"}).status_code == 200
        assert http.post("/responses", json={"model": "m", "input": "hi"}).status_code == 429
        assert http.post("/responses", json=body).status_code == 429


def test_a_line_of_a_batch_is_not_prepared_while_its_key_is_at_its_limit(
    gateway: RunningGateway,
) -> None:
    """Such a line waits. It would fail at once if it were prepared."""
    refused = threading.Event()
    limiter: Any = gateway.services.limiter
    prepare = limiter.prepare

    def watched(principal: Any) -> Any:
        try:
            return prepare(principal)
        except RateLimited:
            refused.set()
            raise

    with client(gateway, "batches") as http, pytest.MonkeyPatch.context() as patch:
        body = UNREADABLE["/responses/compact"]
        line = {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": body}
        sent = {"file": ("a.jsonl", json.dumps(line).encode())}
        file = http.post("/files", files=sent, data={"purpose": "batch"}).json()["id"]
        patch.setattr(limiter, "prepare", watched)
        made = http.post(
            "/batches",
            json={
                "input_file_id": file,
                "endpoint": "/v1/responses",
                "completion_window": "24h",
            },
        )
        assert made.status_code == 200, made.text
        assert http.post("/responses", json={"model": "m", "input": "hi"}).status_code == 429
        refused.clear()
        wait_until(refused.is_set)
        seen = http.get(f"/batches/{made.json()['id']}").json()
        assert seen["request_counts"]["failed"] == 0, seen
        assert http.post(f"/batches/{seen['id']}/cancel").status_code == 200
