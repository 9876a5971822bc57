"""Background responses of a process that ends, which another process runs again: the gateways and their clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import wait_until

CONFIG = """
[server]
port = {port}
store = "STORE"
lease_seconds = 2
grace_period = {grace}
rerun_lost = RERUN
{server}

TABLE

[models.scripted]
engine = "scripted"
path = "SCENARIO"
max_running = 1
"""
# What a process is in the middle of when it is killed or stopped takes longer than any machine needs to come to that.
RULES: list[dict[str, Any]] = [
    {"when": "at length", "delay_ms": 20, "repeat": 5000, "pieces": [{"text": "slow words "}]},
    {"when": "briefly", "pieces": [{"text": "brief words"}]},
    {"when": "think", "delay_ms": 100_000, "chunk": 100, "pieces": [{"text": "own words"}]},
    {"when": "take your time", "delay_ms": 20, "repeat": 5000, "pieces": [{"text": "own words "}]},
    {"when": "at leisure", "delay_ms": 20, "repeat": 60, "pieces": [{"text": "leisurely "}]},
]


def rerun_config(store: Any, folder: Path) -> str:
    """The configuration of gateways that share `store`; `RERUN` in it stands for `rerun_lost`."""
    scenario = folder / "reruns.json"
    scenario.write_text(json.dumps(RULES))
    return (
        CONFIG.replace("STORE", store.name)
        .replace("TABLE", store.table())
        .replace("SCENARIO", str(scenario))
    )


def post(url: str, words: str, **more: Any) -> str:
    """Begin a background response; its id. A stream is left as soon as it has said it."""
    body = {"model": "scripted", "input": words, "background": True, **more}
    with httpx.stream("POST", f"{url}/v1/responses", json=body, timeout=60) as answer:
        if not more.get("stream"):
            made = json.loads(answer.read())
        else:
            data = next(line for line in answer.iter_lines() if line.startswith("data: {"))
            made = json.loads(data[6:])["response"]
    response_id: str = made["id"]
    return response_id


def ended(url: str, response_id: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        response: dict[str, Any] = httpx.get(f"{url}/v1/responses/{response_id}").json()
        return response if response["status"] not in ("queued", "in_progress") else None

    response = wait_until(found, "the end of the response")
    assert response is not None
    return response


def until_output(url: str, response_id: str) -> None:
    """Wait until a running response has output that others can see."""
    where = f"{url}/v1/responses/{response_id}?stream=true"
    with httpx.stream("GET", where, timeout=60) as answer:
        next(line for line in answer.iter_lines() if line == "event: response.output_text.delta")


def until_running(url: str, *response_ids: str) -> None:
    """Wait until each of them runs, also for others."""
    for each in response_ids:
        where = f"{url}/v1/responses/{each}"
        wait_until(lambda where=where: httpx.get(where).json()["status"] == "in_progress", where)  # type: ignore[misc]


def with_other_words(config: str, tmp_path: Path) -> str:
    """Another process, whose model says something else, and soon."""
    scenario = tmp_path / "others.json"
    rules = [{**rule, "delay_ms": 20, "repeat": 3} for rule in RULES]
    scenario.write_text(json.dumps(rules).replace("own words", "other words"))
    return config.replace("reruns.json", scenario.name)


def said(response: dict[str, Any]) -> str:
    text: str = response["output"][0]["content"][0]["text"]
    return text
