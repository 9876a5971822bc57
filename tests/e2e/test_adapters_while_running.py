"""LoRA adapters are loaded and unloaded while the server runs, as vLLM does it."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway
from tests.waiting import wait_until

SLOW = [{"when": "slowly", "pieces": [{"text": "tick "}], "repeat": 100, "delay_ms": 5}]


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    models: dict[str, Any] = {
        "m": {
            "engine": "scripted",
            "aliases": ["alias"],
            "scripted": {"adapters": ["configured"], "rules": SLOW},
        }
    }
    with (
        run_gateway({"models": models}, tmp_path) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as client,
    ):
        yield client


def names(http: httpx.Client) -> list[str]:
    return [each["id"] for each in http.get("/models").json()["data"]]


def load(http: httpx.Client, name: str, path: Path, **fields: Any) -> httpx.Response:
    body = {"lora_name": name, "lora_path": str(path), **fields}
    return http.post("/load_lora_adapter", json=body)


def test_an_adapter_is_loaded_used_and_unloaded(http: httpx.Client, tmp_path: Path) -> None:
    answer = load(http, "org/new", tmp_path)
    assert answer.status_code == 200
    assert answer.text == "Success: LoRA adapter 'org/new' added successfully."
    assert names(http) == ["m", "configured", "org/new"]
    shown = http.get("/models/org/new").json()
    assert (shown["parent"], shown["root"], shown["state"]) == ("m", "org/new", "loaded")
    used = http.post("/responses", json={"model": "org/new", "input": "Hi"})
    assert used.json()["model"] == "org/new"
    for name in ("configured", "org/new"):
        gone = http.post("/unload_lora_adapter", json={"lora_name": name})
        assert gone.text == f"Success: LoRA adapter '{name}' removed successfully."
        assert http.post("/responses", json={"model": name, "input": "Hi"}).status_code == 404
    assert names(http) == ["m"]


def test_a_running_stream_of_an_adapter_that_is_unloaded_goes_on(http: httpx.Client) -> None:
    body = {"model": "configured", "input": "slowly", "stream": True}
    with http.stream("POST", "/responses", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("event: response.created")
        gone = http.post("/unload_lora_adapter", json={"lora_name": "configured"})
        assert gone.status_code == 200
        assert "response.completed" in "\n".join(lines)


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"lora_name": "configured"}, 400, "lora_name"),
        ({"lora_name": "m"}, 400, "lora_name"),
        ({"lora_name": "alias"}, 400, "lora_name"),
        ({"lora_name": ""}, 400, "lora_name"),
        ({"lora_name": "a\nb"}, 400, "lora_name"),
        ({"lora_name": 7}, 400, "lora_name"),
        ({"lora_name": "x" * 257}, 400, "lora_name"),
        ({"lora_name": "new", "lora_path": "/does/not/exist"}, 400, "lora_path"),
        ({"lora_name": "new", "load_inplace": True}, 400, "load_inplace"),
        ({"lora_name": "new", "model": "unknown"}, 404, "model"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    http: httpx.Client, tmp_path: Path, body: dict[str, Any], status: int, param: str
) -> None:
    answer = http.post("/load_lora_adapter", json={"lora_path": str(tmp_path), **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert names(http) == ["m", "configured"]


@pytest.mark.parametrize("name", ["unknown", "m", "alias"])
def test_only_adapters_are_unloaded(http: httpx.Client, name: str) -> None:
    answer = http.post("/unload_lora_adapter", json={"lora_name": name})
    assert (answer.status_code, answer.json()["error"]["param"]) == (404, "lora_name")


def test_only_administrators_change_adapters(tmp_path: Path) -> None:
    keys = [{"name": "user", "sha256": hashlib.sha256(b"key").hexdigest()}]
    config = {"server": {"api_keys": keys}, "models": {"m": {"engine": "scripted"}}}
    with (
        run_gateway(config, tmp_path) as running,
        httpx.Client(base_url=running.base_url, headers={"authorization": "Bearer key"}) as http,
    ):
        assert load(http, "new", tmp_path).status_code == 403
        assert http.post("/unload_lora_adapter", json={"lora_name": "new"}).status_code == 403


def test_an_engine_that_cannot_load_adapters_says_so(tmp_path: Path) -> None:
    with (
        run_gateway({"models": {"tiny": {"engine": "llamacpp"}}}, tmp_path) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as http,
    ):
        answer = load(http, "new", tmp_path)
        assert answer.status_code == 400
        assert "llamacpp" in answer.json()["error"]["message"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")
def test_adapters_outlive_the_engines_process(tmp_path: Path) -> None:
    """It is started again with them. One that cannot be loaded any more is shown as failed, and can be unloaded."""
    (tmp_path / "lost").mkdir()
    models = {"m": {"engine": "scripted", "process": "own"}}
    with (
        run_gateway({"models": models}, tmp_path) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as http,
    ):
        assert load(http, "kept", tmp_path).status_code == 200
        assert load(http, "lost", tmp_path / "lost").status_code == 200
        (tmp_path / "lost").rmdir()
        [engine] = engines(os.getpid())
        os.kill(engine, signal.SIGKILL)
        wait_until(lambda: engines(os.getpid()) not in ([], [engine]))
        wait_until(lambda: states(http)["m"] == "loaded")
        assert states(http) == {"m": "loaded", "kept": "loaded", "lost": "failed"}
        assert http.get("/models/lost").json()["state"] == "failed"
        used = http.post("/responses", json={"model": "kept", "input": "Hi"})
        assert used.json()["status"] == "completed"
        refused = http.post("/responses", json={"model": "lost", "input": "Hi"})
        assert refused.status_code == 400
        gone = http.post("/unload_lora_adapter", json={"lora_name": "lost"})
        assert gone.status_code == 200
        assert names(http) == ["m", "kept"]


def states(http: httpx.Client) -> dict[str, str]:
    return {each["id"]: each["state"] for each in http.get("/models").json()["data"]}


def engines(server: int) -> list[int]:
    """The engine processes of a server."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == server and "engine_main" in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
