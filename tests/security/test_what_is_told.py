"""What the server tells of itself, and to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.access import hash_key
from gateway.base.errors import ConfigurationError, EngineUnavailable
from gateway.config import load_config
from gateway.plugins.protocols import Credentials, Principal
from gateway.sdk import hookimpl
from gateway_scripted import Scenario, ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

NAMES = ("ada", "prometheus")
SCENARIO = Path(__file__).parents[1] / "e2e" / "scenario.json"
MODELS: dict[str, Any] = {"m": {"engine": "scripted", "path": str(SCENARIO)}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = [{"name": name, "sha256": hash_key(name)} for name in NAMES]
    server = {"api_keys": keys, "metrics": ["prometheus"]}
    with run_gateway(
        {"server": server, "models": MODELS}, tmp_path_factory.mktemp("told")
    ) as running:
        yield running


def get(gateway: RunningGateway, path: str, key: str | None) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.get(gateway.base_url.removesuffix("/v1") + path, headers=headers)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "//metrics", "/%6detrics", "/v1/../metrics"])  # fmt: skip
def test_metrics_are_shown_to_the_keys_that_are_named(gateway: RunningGateway, path: str) -> None:
    for key in (None, "wrong", "ada"):
        answer = get(gateway, path, key)
        assert answer.status_code in (401, 403, 404)
        assert b"gateway_requests" not in answer.content
    assert get(gateway, "/metrics", "ada").status_code == 403
    assert b"gateway_requests" in get(gateway, "/metrics", "prometheus").content


def test_probes_need_no_key(gateway: RunningGateway) -> None:
    assert get(gateway, "/health", None).status_code == 200
    assert get(gateway, "/ready", None).status_code == 200


@pytest.mark.parametrize("metrics", ["[]", '["nobody"]'])
def test_metrics_for_a_key_that_is_not_there_stop_the_start(tmp_path: Path, metrics: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[server]\nmetrics = {metrics}\n")
    with pytest.raises(ConfigurationError, match="metrics"):
        load_config(file, {})


def test_models_are_listed_without_paths(gateway: RunningGateway) -> None:
    for path in ("/v1/models", "/v1/models/m"):
        text = get(gateway, path, "ada").text
        assert str(SCENARIO.parent) not in text
        assert "scenario" not in text
    assert get(gateway, "/v1/models/m", "ada").json()["root"] == "m"


class Unready(ScriptedEngine):
    """An engine that cannot serve."""

    async def health(self) -> None:
        raise EngineUnavailable("no answer from http://secret-host:8000")


class ReadyPlugin:
    @asynccontextmanager
    async def open(self, config: Any, context: Any) -> AsyncIterator[ScriptedEngine]:
        yield Unready(Scenario(), name=context.name)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("unready", self.open)

    @hookimpl
    def gateway_register_authenticators(self, register: Any) -> None:
        register("tokens", lambda config: _given(Tokens()))


class Tokens:
    async def authenticate(self, request: Credentials) -> Principal | None:
        if request.bearer == "token-of-admin":
            return Principal(name="boss", admin=True)
        if request.bearer == "break":
            raise RuntimeError("a mistake")
        return Principal(name="one") if request.bearer == "token" else None


@asynccontextmanager
async def _given(tokens: Tokens) -> AsyncIterator[Tokens]:
    yield tokens


@pytest.mark.parametrize("ready", [True, False])
def test_who_is_no_administrator_is_told_only_whether_the_server_is_ready(
    tmp_path: Path, ready: bool
) -> None:
    """Probes need no key, and see neither models nor addresses of engines."""
    keys = [
        {"name": "ada", "sha256": hash_key("ada")},
        {"name": "root", "sha256": hash_key("root"), "admin": True},
    ]
    second = {**MODELS["m"], "load": "on_demand"} if ready else {"engine": "unready"}
    config = {
        "server": {"api_keys": keys},
        "authenticators": {"tokens": {}},
        "models": {**MODELS, "hidden": second},
    }
    with run_gateway(config, tmp_path, plugins=[ReadyPlugin()]) as running:
        for key in (None, "wrong", "ada", "token", "break"):
            answer = get(running, "/ready", key)
            assert answer.status_code == (200 if ready else 503)
            assert b"hidden" not in answer.content
            assert b"secret-host" not in answer.content
            if ready:
                assert answer.json() == {"status": "ready"}
            else:
                assert answer.json()["error"]["code"] == "not_ready"
        for key in ("root", "token-of-admin"):
            answer = get(running, "/ready", key)
            assert (b"hidden" if ready else b"secret-host") in answer.content
