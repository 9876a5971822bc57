"""A model with `required = false` that cannot be opened stops only itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import force_setattr

from gateway.base.errors import ConfigurationError
from gateway_testing.server import RunningGateway, run_gateway


def config(folder: Path, **broken: Any) -> dict[str, Any]:
    (folder / "secret-place.json").write_text("no scenario")
    model = {
        "engine": "scripted",
        "path": str(folder / "secret-place.json"),
        "aliases": ["also-broken"],
        "description": "One that is broken.",
        **broken,
    }
    return {"models": {"broken": model, "sound": {"engine": "scripted"}}}


@pytest.fixture
def http(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[httpx.Client]:
    caplog.set_level(logging.ERROR, "gateway.models.model_slots")
    with (
        run_gateway(config(tmp_path, required=False), tmp_path) as running,
        httpx.Client(base_url=running.base_url.removesuffix("/v1"), timeout=60) as client,
    ):
        yield client


def test_the_others_are_served_and_requests_for_it_are_told(
    http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        each.getMessage()
        for each in caplog.get_records("setup")
        if each.name == "gateway.models.model_slots"
    ]
    assert len(lines) == 1
    assert "models.broken: " in lines[0]
    assert "secret-place.json" in lines[0]
    assert http.post("/v1/responses", json={"model": "sound", "input": "Hi"}).status_code == 200
    assert http.post("/v1/responses", json={"input": "Hi"}).status_code == 200  # the only one
    for name in ("broken", "also-broken"):
        messages = [{"role": "user", "content": "Hi"}]
        for path, body in (
            ("responses", {"input": "Hi"}),
            ("chat/completions", {"messages": messages}),
            ("completions", {"prompt": "Hi"}),
            ("embeddings", {"input": "Hi"}),
            ("messages", {"messages": messages, "max_tokens": 9}),
        ):
            answer = http.post(f"/v1/{path}", json={"model": name, **body})
            assert answer.status_code == (529 if path == "messages" else 503)  # as Anthropic has it
            message = answer.json()["error"]["message"]
            assert "The model 'broken' could not be opened" in message
            assert "secret-place" not in answer.text


def test_its_state_is_shown(http: httpx.Client) -> None:
    listed = {each["id"]: each for each in http.get("/v1/models").json()["data"]}
    assert listed["sound"]["state"] == "loaded"
    assert listed["broken"]["state"] == "failed"
    assert listed["broken"]["description"] == "One that is broken."
    assert http.get("/v1/models/also-broken").json() == listed["broken"]
    ready = http.get("/ready")
    assert ready.status_code == 200
    assert ready.json() == {
        "status": "ready",
        "unavailable_models": ["broken"],
        "models": {"broken": "failed", "sound": "loaded"},
    }
    metrics = http.get("/metrics").text
    assert 'gateway_model_opened{model="broken"} 0.0' in metrics
    assert 'gateway_model_opened{model="sound"} 1.0' in metrics


def test_a_required_one_stops_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match=r"models\.broken"),
        run_gateway(config(tmp_path), tmp_path),
    ):
        pass


def test_one_of_them_has_to_open(tmp_path: Path) -> None:
    alone = config(tmp_path, required=False)
    del alone["models"]["sound"]
    with (
        pytest.raises(ConfigurationError, match="None of the models could be opened: broken;"),
        run_gateway(alone, tmp_path),
    ):
        pass


@pytest.mark.parametrize("required", [[], ["a"], ["a", "b"], ["b"]])
@pytest.mark.parametrize("crashed", [[], ["a"], ["b"], ["a", "b"]])
def test_the_server_is_ready_while_those_that_are_required_can_serve(
    optional: RunningGateway, required: list[str], crashed: list[str]
) -> None:
    """And at least one can, if none is required."""
    models = optional.services.models
    for name, model in models.items():
        force_setattr(model.config, "required", name in required)
        engine: Any = model.engine
        engine._crashed_at = inf if name in crashed else None  # it does not recover
    ready = httpx.get(f"{optional.base_url.removesuffix('/v1')}/ready", timeout=60)
    serves = not set(required) & set(crashed) and len(crashed) < len(models)
    assert ready.status_code == (200 if serves else 503)
    if serves:
        assert ready.json().get("unavailable_models", []) == crashed


@pytest.fixture(scope="module")
def optional(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {name: {"engine": "scripted"} for name in "ab"}
    with run_gateway({"models": models}, tmp_path_factory.mktemp("optional")) as running:
        yield running
