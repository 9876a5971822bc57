"""A scope that has been answered once, and comes again, is checked like a new one: a middleware may try a request twice."""

from __future__ import annotations

from typing import Any

import pytest
from litestar.testing import TestClient

import gateway_chat_template
import gateway_parsers
import gateway_scripted
from gateway.access.access import hash_key
from gateway.config import ApiKey, Config, ModelConfig, ServerConfig
from gateway.http.app import create_app
from gateway.plugins.loading import load_plugins

PLUGINS = [gateway_chat_template, gateway_parsers, gateway_scripted]


class Twice:
    """A middleware that sends each request twice, and answers with the second answer."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.first: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def note(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.first.append(message["status"])

        if scope["type"] == "http":
            await self._app(scope, receive, note)
        await self._app(scope, receive, send)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer right"}, 200),
        ({"authorization": "Bearer right", "host": "a b"}, 400),
    ],
)
def test_a_scope_that_comes_again_is_checked_again(headers: dict[str, str], status: int) -> None:
    key = ApiKey(name="ada", sha256=hash_key("right"))
    server = ServerConfig(store="none", apis=[], api_keys=[key])
    config = Config(models={"m": ModelConfig(engine="scripted")}, server=server)
    app = Twice(create_app(config, load_plugins(extra=PLUGINS, installed=False)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.get("/v1/models", headers=headers)
    assert answer.status_code == status
    assert app.first == [status]
