"""Loading models while the server runs: who may, and what requests can make it do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway


def key(name: str, **rights: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest(), **rights}


def with_key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-{name}"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningGateway]:
    config = {
        "server": {"api_keys": [key("narrow", models=["open"]), key("root", admin=True)]},
        "models": {
            name: {"engine": "scripted", "load": "on_demand", "aliases": [f"{name}-alias"]}
            for name in ("open", "hidden")
        },
    }
    with run_gateway(config, tmp_path) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "Hi"}),
        ("chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("completions", {"prompt": "Hi"}),
        ("embeddings", {"input": "Hi"}),
        ("rerank", {"query": "Hi", "documents": ["Ho"]}),
        ("messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}),
    ],
)
def test_a_key_cannot_load_a_model_that_it_may_not_use(
    running: RunningGateway, path: str, body: dict[str, Any]
) -> None:
    with httpx.Client(base_url=running.base_url, headers=with_key("narrow"), timeout=60) as http:
        for name in ("hidden", "hidden-alias"):
            answer = http.post(f"/{path}", json={"model": name, **body})
            assert answer.status_code == 404, answer.text
            assert "hidden" not in answer.text.replace(f"'{name}'", "")
    assert running.services.slots.slots["hidden"].state == "unloaded"


def test_a_hidden_model_is_not_shown_before_it_is_loaded(running: RunningGateway) -> None:
    with httpx.Client(base_url=running.base_url, headers=with_key("narrow"), timeout=60) as http:
        assert [each["id"] for each in http.get("/models").json()["data"]] == ["open"]
        assert http.get("/models/hidden").status_code == 404
        # Without a name, only the models count that the key may use.
        answer = http.post("/responses", json={"input": "Hi"})
        assert answer.json()["model"] == "open"


def test_names_of_models_are_only_names(running: RunningGateway) -> None:
    with httpx.Client(base_url=running.base_url, headers=with_key("root"), timeout=60) as http:
        for name in ("../etc/passwd", "%2e%2e/x", "hf:owner/repo", "x" * 10_000, "a%00b"):
            assert http.post(f"/models/{name}/load").status_code in (400, 404, 405)
            answer = http.post("/responses", json={"model": name, "input": "Hi"})
            assert answer.status_code == 404


def test_several_processes_are_not_changed_by_one_request(tmp_path: Path) -> None:
    config = {"server": {"workers": 2, "store": "none"}, "models": {"m": {"engine": "scripted"}}}
    with run_gateway(config, tmp_path) as gateway, httpx.Client(base_url=gateway.base_url) as http:
        for method, path in (("POST", "/models/m/unload"), ("DELETE", "/models/m")):
            answer = http.request(method, path)
            assert answer.status_code == 400
            assert "worker processes" in answer.json()["error"]["message"]
