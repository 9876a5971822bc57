"""`rerun_lost`: what waited in the queue of a process that died is run by another."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.testing.grammar import fold, parse_sse
from gateway_redis.testing import RedisProcess

CONFIG = """
[server]
port = {port}
store = "redis"
lease_seconds = 2
grace_period = {grace}
rerun_lost = RERUN
{server}

[stores.redis]
url = "REDIS"

[models.scripted]
engine = "scripted"
path = "SCENARIO"
max_running = 1
"""
pytestmark = pytest.mark.slow

RULES = [
    {"when": "at length", "delay_ms": 20, "repeat": 1000, "pieces": [{"text": "slow words "}]},
    {"when": "briefly", "pieces": [{"text": "brief words"}]},
]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    made = RedisProcess(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def config(redis: RedisProcess, tmp_path: Path) -> str:
    scenario = tmp_path / "reruns.json"
    scenario.write_text(json.dumps(RULES))
    return CONFIG.replace("REDIS", redis.url).replace("SCENARIO", str(scenario))


def post(url: str, words: str, **more: Any) -> str:
    """Begin a background response; its id. A stream is left as soon as it has said it."""
    body = {"model": "scripted", "input": words, "background": True, **more}
    with httpx.stream("POST", f"{url}/v1/responses", json=body, timeout=20) as answer:
        if not more.get("stream"):
            made = json.loads(answer.read())
        else:
            data = next(line for line in answer.iter_lines() if line.startswith("data: {"))
            made = json.loads(data[6:])["response"]
    response_id: str = made["id"]
    return response_id


def ended(url: str, response_id: str) -> dict[str, Any]:
    for _ in range(200):
        response: dict[str, Any] = httpx.get(f"{url}/v1/responses/{response_id}").json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        time.sleep(0.05)
    raise AssertionError(f"the response is {response['status']} for ever")


@pytest.mark.parametrize("rerun", [True, False])
def test_what_waited_is_run_and_what_ran_has_failed(
    start_server: Any, config: str, rerun: bool
) -> None:
    configured = config.replace("RERUN", str(rerun).lower())
    first = start_server(configured)
    running = post(first.url, "at length", stream=True)
    waiting = [post(first.url, "briefly", stream=number % 2 == 0) for number in range(6)]
    time.sleep(0.2)
    first.stop(signal.SIGKILL)
    second = start_server(configured)
    lost = ended(second.url, running)
    assert lost["status"] == "failed"
    assert "owner_lost" in lost["error"]["message"]
    for number, each in enumerate(waiting):
        response = ended(second.url, each)
        assert response["status"] == ("completed" if rerun else "failed")
        if rerun:
            assert response["output"][0]["content"][0]["text"] == "brief words"
        if number % 2 == 0:
            replayed = httpx.get(f"{second.url}/v1/responses/{each}", params={"stream": "true"})
            assert fold(parse_sse(replayed.content)) == response


def test_one_that_is_slow_and_not_dead_is_not_run_twice(
    start_server: Any, config: str, redis: RedisProcess
) -> None:
    """It stops for longer than its leases last, and goes on: each response is made once, by one of the two."""
    configured = config.replace("RERUN", "true")
    first = start_server(configured)
    running = post(first.url, "at length", stream=True)
    waiting = [post(first.url, "briefly", stream=number % 2 == 0) for number in range(4)]
    time.sleep(0.2)
    first.process.send_signal(signal.SIGSTOP)
    second = start_server(configured)
    got = [ended(second.url, each) for each in (running, *waiting)]
    first.process.send_signal(signal.SIGCONT)
    time.sleep(1.5)
    assert [response["status"] for response in got] == ["failed", *["completed"] * 4]
    for response in got:
        assert httpx.get(f"{first.url}/v1/responses/{response['id']}").json() == response
    for each in waiting[::2]:
        replayed = httpx.get(f"{first.url}/v1/responses/{each}", params={"stream": "true"})
        fold(parse_sse(replayed.content))
