"""Authenticators of plugins: who sends a request, before the API keys are asked. The manual's example, served."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gateway import hookimpl
from gateway.access.access import check_access, hash_key
from gateway.base.errors import ConfigurationError
from gateway.config import ServerConfig
from gateway.plugins.protocols import Credentials, Principal, RequestAuthenticator
from gateway_testing import RequestAuthenticatorContract
from gateway_testing.server import RunningGateway, run_gateway

MANUAL = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
SECRET = "between the services"


def manual_example() -> ModuleType:
    section = MANUAL.partition("## `gateway_register_authenticators`")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    module = ModuleType("signed_example")
    exec(found[1], vars(module))  # the project's own documentation
    return module


EXAMPLE: Any = manual_example()


def token(user: str) -> str:
    return f"{user}.{hmac.new(SECRET.encode(), user.encode(), hashlib.sha256).hexdigest()}"


class TestSignedUsers(RequestAuthenticatorContract):
    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def authenticator(self) -> RequestAuthenticator:
        made: RequestAuthenticator = EXAMPLE.SignedUsers(EXAMPLE.SignedConfig(secret=SECRET))
        return made

    @pytest.fixture
    def credentials(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {token('ada')}"}


class Broken:
    """An authenticator that fails for some requests."""

    async def authenticate(self, request: Credentials) -> Principal | None:
        match request.headers.get("x-test"):
            case "break":
                raise RuntimeError("a mistake of the plugin's author")
            case "long":
                return Principal(name="n" * 5000)
            case "admin":
                return Principal(name="root", admin=True)
            case _:
                return None


class BrokenPlugin:
    @asynccontextmanager
    async def make(self, config: Any) -> AsyncIterator[Broken]:
        yield Broken()

    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        register("broken", self.make)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"api_keys": [{"name": "key", "sha256": hash_key("sk-key")}]},
        "authenticators": {"broken": {}, "signed": {"secret": SECRET, "requests_per_minute": 2}},
        "models": {"m": {"engine": "scripted"}},
    }
    folder = tmp_path_factory.mktemp("authenticators")
    with run_gateway(config, folder, plugins=[EXAMPLE, BrokenPlugin()]) as running:
        yield running


def send(gateway: RunningGateway, bearer: str, **headers: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {bearer}", **headers}
    body = {"model": "m", "prompt": "hi"}
    return httpx.post(f"{gateway.base_url}/completions", json=body, headers=headers, timeout=60)


def test_a_principal_of_a_plugin_has_its_limits(gateway: RunningGateway) -> None:
    answers = [send(gateway, token("ada")) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert "user:ada" in answers[2].json()["error"]["message"]
    assert send(gateway, token("bob")).status_code == 200


def test_the_keys_are_asked_last(gateway: RunningGateway) -> None:
    assert send(gateway, "sk-key").status_code == 200
    assert send(gateway, "sk-other").status_code == 401
    refused = send(gateway, "ada.0000")
    assert refused.status_code == 401
    assert "not signed" in refused.json()["error"]["message"]
    assert httpx.get(f"{gateway.base_url}/models").status_code == 401
    assert httpx.get(gateway.base_url.removesuffix("/v1") + "/health").status_code == 200


def test_an_authenticator_that_fails_refuses(gateway: RunningGateway) -> None:
    """Even a right key: what has failed might have refused it."""
    answer = send(gateway, "sk-key", **{"x-test": "break"})
    assert answer.status_code == 500
    assert "mistake" not in answer.text
    assert send(gateway, "sk-key", **{"x-test": "long"}).status_code == 401


def test_a_principal_of_a_plugin_may_be_an_administrator(gateway: RunningGateway) -> None:
    url = f"{gateway.base_url}/organization/costs?start_time=0"
    assert httpx.get(url, headers={"x-test": "admin"}).status_code == 200
    assert httpx.get(url, headers={"authorization": "Bearer sk-key"}).status_code == 403


def test_what_is_stored_belongs_to_the_principal(gateway: RunningGateway) -> None:
    def read(bearer: str, response_id: str) -> int:
        headers = {"authorization": f"Bearer {bearer}"}
        return httpx.get(f"{gateway.base_url}/responses/{response_id}", headers=headers).status_code

    headers = {"authorization": f"Bearer {token('eve')}"}
    body = {"model": "m", "input": "hi"}
    made = httpx.post(
        f"{gateway.base_url}/responses", json=body, headers=headers, timeout=60
    ).json()
    assert read(token("eve"), made["id"]) == 200
    assert read(token("bob"), made["id"]) == 404
    assert read("sk-key", made["id"]) == 404


def test_a_websocket_is_asked_too(gateway: RunningGateway) -> None:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers={"authorization": "Bearer ada.0000"})
    assert refused.value.response.status_code == 401
    with connect(url, additional_headers={"authorization": f"Bearer {token('zoe')}"}) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "m", "input": "hi"}))
        while (event := json.loads(socket.recv(60)))["type"] != "response.completed":
            assert event["type"] != "error", event


def test_a_server_with_an_authenticator_may_be_public() -> None:
    with pytest.raises(ConfigurationError):
        check_access(ServerConfig(host="::"))
    check_access(ServerConfig(host="::"), authenticated=True)


def test_an_unknown_authenticator_stops_the_start(tmp_path: Path) -> None:
    config = {"authenticators": {"nobody": {}}, "models": {"m": {"engine": "scripted"}}}
    with pytest.raises(ConfigurationError, match="authenticator"), run_gateway(config, tmp_path):
        pass
