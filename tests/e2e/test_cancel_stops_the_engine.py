"""Cancelling ends the engine's own work: by its count of requests, and by the processor time that it takes."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.redis_process import RedisProcess
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

SAFETENSORS = Path(__file__).parents[1] / "models" / "tiny-qwen3"
LENGTH = 4096
TOKENS = LENGTH - 200
SLOTS = 8
MODELS: dict[str, dict[str, Any]] = {
    "scripted": {"scripted": {"rules": [{"when": "go on", "delay_ms": 20, "repeat": 100_000, "pieces": [{"text": "on "}]}]}},
    "llamacpp": {"llamacpp": {"n_ctx": LENGTH, "n_parallel": SLOTS}},
    "vllm": {
        "path": str(SAFETENSORS),
        "max_model_len": LENGTH,
        "vllm": {"enforce_eager": True, "max_num_seqs": 8},
    },
}  # fmt: skip
COUNTS: dict[str, Callable[[Any], int]] = {
    "scripted": lambda engine: len(engine.running),
    "llamacpp": lambda engine: SLOTS - engine._slots.free,
    "vllm": lambda engine: engine.running + engine.waiting,
}
pytestmark = pytest.mark.filterwarnings("default")  # an engine's start has warnings of its own
NO_VLLM = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed here; .ci/run installs its CPU build",
)


@pytest.fixture(
    scope="module",
    params=["scripted", "llamacpp", pytest.param("vllm", marks=[pytest.mark.vllm, NO_VLLM])],
)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def gateway(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    config = {"models": {"m": {"engine": kind, **MODELS[kind]}}}
    with run_gateway(config, tmp_path_factory.mktemp("cancelled")) as running:
        yield running


def begin(base_url: str, **more: Any) -> str:
    """Start a background response that writes for long; its id."""
    body = {
        "model": "m", "input": "go on", "background": True, "ignore_eos": True,
        "max_output_tokens": TOKENS, **more,
    }  # fmt: skip
    if not more.get("stream"):
        made: str = httpx.post(f"{base_url}/responses", json=body, timeout=30).json()["id"]
        return made
    with httpx.stream("POST", f"{base_url}/responses", json=body, timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                return line.split('"id":"')[1].split('"')[0]
    raise AssertionError("the stream says nothing")


def cancel(base_url: str, response_id: str) -> None:
    answer = httpx.post(f"{base_url}/responses/{response_id}/cancel", timeout=60)
    assert answer.json()["status"] == "cancelled"


def runs_on(base_url: str, response_id: str) -> float:
    """For how many seconds this response would go on by itself, by its pace until now."""
    listed = httpx.get(f"{base_url}/gateway/runs", timeout=60).json()["running"]
    [run] = [each for each in listed if each["response_id"] == response_id]
    made = max(1, run["output_tokens"])
    left: float = run["seconds"] / made * (TOKENS - made)
    assert left > 0
    return left


def processor_seconds() -> float:
    """What this process and all below it have computed so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
    own, grown = {os.getpid()}, True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in own} - own
        own |= below
        grown = bool(below)
    return sum(ticks.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


def computed_in(seconds: float) -> float:
    """The share of one core that is used, over so many seconds."""
    before = processor_seconds()
    time.sleep(seconds)
    return (processor_seconds() - before) / seconds


@pytest.mark.parametrize("stream", [False, True])
def test_the_engine_lets_go_of_what_is_cancelled(
    gateway: RunningGateway, kind: str, stream: bool
) -> None:
    """Long before it would have ended: another one, which began earlier and is as long, goes on."""
    engine, count = gateway.services.models["m"].engine, COUNTS[kind]
    other, *ids = [begin(gateway.base_url, stream=stream) for _ in range(4)]
    wait_until(lambda: count(engine) == 4, "all run")
    # On a busy machine it does not have a core for itself.
    busy = max(computed_in(0.2) for _ in range(1 if kind == "scripted" else 5))
    for left in (3, 2, 1):
        cancel(gateway.base_url, ids.pop())
        wait_until(lambda left=left: count(engine) == left, f"{left} are left")  # type: ignore[misc]
        assert runs_on(gateway.base_url, other), "they have not ended of themselves"
    own_end = runs_on(gateway.base_url, other)
    cancel(gateway.base_url, other)
    wait_until(lambda: count(engine) == 0, "none is left", own_end / 2)
    if kind != "scripted":  # which computes next to nothing
        assert busy > 0
        # Threads spin for a moment after their last work.
        wait_until(lambda: computed_in(0.2) < busy / 3, "it computes no more", own_end / 2)


@pytest.mark.parametrize("kind", ["llamacpp"], indirect=True)
def test_what_waits_for_a_slot_is_let_go_too(gateway: RunningGateway) -> None:
    engine: Any = gateway.services.models["m"].engine
    ids = [begin(gateway.base_url) for _ in range(SLOTS + 1)]
    wait_until(lambda: engine._slots.free == 0, "all slots are taken")
    own_end = runs_on(gateway.base_url, ids[0])
    for each in reversed(ids):
        cancel(gateway.base_url, each)
    wait_until(lambda: engine._slots.free == SLOTS, "all slots are free", own_end / 2)


@pytest.mark.parametrize("stream", [False, True])
def test_another_process_cancels_too(start_server: Any, tmp_path: Path, stream: bool) -> None:
    redis = RedisProcess(tmp_path)
    shared = {
        "server": {"store": "redis"},
        "stores": {"redis": {"url": redis.url, "connect_timeout": 30, "timeout": 60}},
        "models": {"m": {"engine": "scripted", **MODELS["scripted"]}},
    }
    try:
        with run_gateway(shared, tmp_path) as own:
            toml = (tmp_path / "gateway.toml").read_text()
            other = start_server(toml.replace('store = "redis"', 'store = "redis", port = {port}'))
            engine: Any = own.services.models["m"].engine
            ids = [begin(own.base_url, stream=stream) for _ in range(3)]
            wait_until(lambda: len(engine.running) == 3, "all run")
            for left in (2, 1, 0):
                cancel(f"{other.url}/v1", ids.pop())
                wait_until(lambda left=left: len(engine.running) == left, f"{left} are left")  # type: ignore[misc]
            assert len(engine.aborted) == 3
    finally:
        redis.kill()
