"""Frequent routes are answered without the framework's router. No client can tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from litestar.testing import TestClient

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from gateway.base.errors import NotFound
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.http.app import GatewayApp, create_app
from gateway.plugins.loading import load_plugins

PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
PATHS = ("/v1/responses", "/v1/chat/completions", "/v1/completions", "/v1/embeddings")
JSON = {"content-type": "application/json", "x-request-id": "mine"}
RESPONSE = b'{"model": "m", "input": "hi", "unknown": 1}'
CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
NEW = re.compile(rb'[a-z]+[_-][0-9a-f]{48}|"(?:created|created_at|completed_at)":\d+')
"""What is new in each answer."""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Any]]:
    config = Config(
        models={"m": ModelConfig(engine="scripted")}, server=ServerConfig(store="none", apis=[])
    )
    app = create_app(config, load_plugins(extra=PLUGINS, installed=False))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def seen(client: TestClient[Any], path: str, body: bytes, headers: dict[str, str]) -> Any:
    """What a client sees, without what is new in each answer."""
    answer = client.post(path, content=body, headers=headers)
    told = dict(answer.headers)
    told.pop("openai-processing-ms")
    return answer.status_code, told, NEW.sub(b"", answer.content)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (RESPONSE, JSON),
        (RESPONSE[:-1] + b', "stream": true}', JSON),
        (CHAT, JSON),
        (b'{"model": "m", "prompt": "hi"}', JSON),
        (b'{"model": "none", "input": "hi"}', JSON),
        (b'{"model"', JSON),
        (b"", JSON),
        (RESPONSE, {**JSON, "content-type": "text/csv"}),
        (RESPONSE, {**JSON, "host": "evil.example"}),
        (RESPONSE, {**JSON, "host": 'a"b'}),
        (RESPONSE, {**JSON, "origin": "http://evil.example"}),
        (RESPONSE, {**JSON, "content-encoding": "br"}),
    ],
)
def test_the_answer_is_the_same_as_by_the_framework(
    client: TestClient[Any], path: str, body: bytes, headers: dict[str, str]
) -> None:
    app: Any = client.app
    assert isinstance(app, GatewayApp)
    direct = seen(client, path, body, headers)
    routes, app.direct_routes = app.direct_routes, {}
    try:
        assert set(routes) == set(PATHS)
        assert seen(client, path, body, headers) == direct
    finally:
        app.direct_routes = routes


@pytest.mark.parametrize("error", [NotFound("Nothing is here."), ValueError("a mistake")])
def test_errors_of_a_handler_are_answered_in_the_envelope(
    client: TestClient[Any], error: Exception
) -> None:
    async def fail(request: Any) -> Any:
        raise error

    app: Any = client.app
    routes, app.direct_routes = app.direct_routes, {PATHS[0]: fail}
    try:
        answer = client.post(PATHS[0], content=RESPONSE, headers=JSON)
    finally:
        app.direct_routes = routes
    told = isinstance(error, NotFound)
    assert answer.status_code == (404 if told else 500)
    assert answer.headers["x-request-id"] == "mine"
    assert ("Nothing is here." if told else "internal error") in answer.json()["error"]["message"]
    assert "a mistake" not in answer.text


def test_requests_are_counted_by_their_routes(client: TestClient[Any]) -> None:
    for _ in range(2):
        client.post(PATHS[0], content=RESPONSE, headers=JSON)
    assert (
        'gateway_requests_total{route="/v1/responses",status="200"}' in client.get("/metrics").text
    )
