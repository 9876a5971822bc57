"""What a key may not do: go before the requests of others, use containers without a tool for them, or stay after its file is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway.access.access import hash_key
from gateway.base.errors import ConfigurationError
from gateway_remote.failures import read_error, refusal
from gateway_testing.server import RunningGateway, run_gateway, to_toml


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_key(f"sk-{name}"), **fields}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = [key("usual"), key("early", priority=-5), key("late", priority=5)]
    config = {
        "server": {"api_keys": keys},
        "models": {
            "m": {"engine": "scripted"},
            "r": {"engine": "scripted", "scripted": {"task": "rerank"}},
        },
        "apis": {"messages": {}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("permissions")) as running:
        yield running


M = [{"role": "user", "content": "a"}]
ROUTES: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("responses", {"input": "a"}),
    "chat": ("chat/completions", {"messages": M}),
    "completions": ("completions", {"prompt": "a"}),
    "messages": ("messages", {"messages": M, "max_tokens": 5}),
    "embeddings": ("embeddings", {"input": "a"}),
    "rerank": ("rerank", {"model": "r", "query": "a", "documents": ["a", "b"]}),
}


def post(gateway: RunningGateway, name: str, route: str, priority: int) -> httpx.Response:
    path, body = ROUTES[route]
    headers = {"authorization": f"Bearer sk-{name}"}
    sent = {"model": "m", "priority": priority, **body}
    return httpx.post(f"{gateway.base_url}/{path}", json=sent, headers=headers, timeout=60)


@pytest.mark.parametrize("route", ROUTES)
def test_a_request_does_not_go_before_those_of_other_keys(
    gateway: RunningGateway, route: str
) -> None:
    for name, priority, status in (
        ("usual", -1, 400), ("usual", -(2**31) + 1, 400), ("usual", 0, 200), ("usual", 9, 200),
        ("early", -5, 200), ("early", -6, 400), ("late", 0, 200), ("late", -1, 400),
    ):  # fmt: skip
        answer = post(gateway, name, route, priority)
        assert answer.status_code == status, answer.text
        if status == 400:
            error = answer.json()["error"]
            assert "before the requests of others" in error["message"]
            if route != "messages":
                assert error["param"] == "priority"


def test_without_keys_a_request_has_the_priority_that_it_asks_for(tmp_path: Path) -> None:
    with run_gateway({"models": {"m": {"engine": "scripted"}}}, tmp_path) as gateway:
        for route in ("responses", "chat", "completions"):
            assert post(gateway, "nobody", route, -9).status_code == 200


def test_the_keys_of_a_file_that_is_no_longer_named_are_refused(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / f"{name}.toml").write_text(to_toml({"api_keys": [key(name)]}))
    config = {
        "server": {"keys_file": "ada.toml", "api_keys": [key("own")]},
        "models": {"m": {"engine": "scripted"}},
    }
    with run_gateway(config, tmp_path) as gateway:

        def status(name: str) -> int:
            headers = {"authorization": f"Bearer sk-{name}"}
            return httpx.get(f"{gateway.base_url}/models", headers=headers).status_code

        def reload(**settings: Any) -> None:
            running = gateway.services.config
            server = msgspec.structs.replace(running.server, **settings)
            changed = msgspec.structs.replace(running, server=server)
            gateway.run(gateway.services.reload(changed))

        assert [status(name) for name in ("own", "ada", "bob")] == [200, 200, 401]
        reload(keys_file=str(tmp_path / "bob.toml"))
        assert [status(name) for name in ("own", "ada", "bob")] == [200, 401, 200]
        with pytest.raises(ConfigurationError):
            reload(keys_file=str(tmp_path / "none.toml"))
        assert [status(name) for name in ("own", "ada", "bob")] == [200, 401, 200]
        reload(keys_file=None)
        assert [status(name) for name in ("own", "ada", "bob")] == [200, 401, 401]
        (tmp_path / "bob.toml").write_text(to_toml({"api_keys": [key("bob", weight=2.0)]}))
        with pytest.raises(ConfigurationError, match="restart"):
            reload(api_keys=[])
        assert [status(name) for name in ("own", "bob")] == [200, 401]


@pytest.mark.parametrize(
    "message",
    [
        "cannot reach redis://user:hunter2@cache.internal:6379/0",
        "GET https://svc:hunter2@files.internal/a?b=c failed",
        "GET https://files.internal/a?api_key=hunter2&b=c failed",
        "upstream said: authorization: Bearer hunter2",
    ],
)
@pytest.mark.parametrize("shape", ["error", "text", "detail"])
def test_what_an_upstream_refuses_is_told_without_its_passwords(message: str, shape: str) -> None:
    error = {"error": {"message": message, "type": "invalid_request_error", "param": "input"}}
    bodies = {"error": error, "text": {"error": message}, "detail": {"detail": message}}
    found = refusal(read_error(msgspec.json.encode(bodies[shape]), 400))
    assert "hunter2" not in found.message
    assert found.message.startswith(message[:10])
    plain = refusal(read_error(message.encode(), 400))
    assert "hunter2" not in plain.message
