"""What operators see of the replicas: `/metrics`, `/ready` and `gateway models`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway, to_toml
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

Start = Callable[..., Awaitable[list[Any]]]


def configuration(stubs: list[Any], vocabulary: str) -> dict[str, Any]:
    remote = {
        "urls": [stub.url for stub in stubs],
        "tokenizer": vocabulary,
        "health_interval": 0.1,
        "health_timeout": 30.0,
        "connect_timeout": 30.0,
        "breaker_failures": 1,
        "breaker_seconds": 60.0,
        "choice": "least_loaded",
    }
    model = {
        "engine": "remote",
        "renderer": "chat_template",
        "chat_template": "{{ messages[-1].content }}",
        "parser": "plain",
        "remote": remote,
    }
    return {"models": {"m": model}}


@asynccontextmanager
async def served(config: dict[str, Any], folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway. The stubs run in the test's own loop, which must not be blocked."""
    running = run_gateway(config, folder)
    gateway = await asyncio.to_thread(running.__enter__)
    try:
        async with httpx.AsyncClient(
            base_url=gateway.base_url.removesuffix("/v1"), timeout=60
        ) as http:
            yield http
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def shown(http: httpx.AsyncClient) -> dict[str, float]:
    """The pool's metrics, by name and labels as they are written."""
    text = (await http.get("/metrics")).text
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("gateway_remote_")
    }


async def statuses(http: httpx.AsyncClient) -> dict[str, str]:
    """What each replica is said to be; one thing only."""
    found: dict[str, str] = {}
    for name, value in (await shown(http)).items():
        if value and (match := re.fullmatch(r"gateway_remote_status\{(.*)\}", name)):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match[1]))
            assert labels["replica"] not in found
            found[labels["replica"]] = labels["status"]
    return found


async def until(http: httpx.AsyncClient, expected: dict[str, str]) -> None:
    async def reached() -> bool:
        return await statuses(http) == expected

    await wait_until_async(reached, str(expected))


async def test_metrics_tell_what_each_replica_is_and_has_done(
    stubs: Start, vocabulary: str, tmp_path: Path
) -> None:
    one, two, three = replicas = await stubs(3)
    async with served(configuration(replicas, vocabulary), tmp_path) as http:

        async def ask() -> None:
            body = {"model": "m", "prompt": "hello", "max_tokens": 4}
            assert (await http.post("/v1/completions", json=body)).status_code == 200

        await until(http, dict.fromkeys((one.url, two.url, three.url), "up"))
        await three.stop()
        await until(http, {one.url: "up", two.url: "up", three.url: "down"})
        two.mode = "error"
        asked = 0
        while asked < 12 or not two.started:  # equally loaded replicas are chosen at random
            await ask()
            asked += 1
        assert await statuses(http) == {one.url: "up", two.url: "open", three.url: "down"}
        values = await shown(http)

        def value(name: str, replica: str) -> float:
            return values[f'gateway_remote_{name}{{model="m",replica="{replica}"}}']

        assert value("served_total", one.url) == asked
        assert value("output_tokens_total", one.url) == 4 * asked
        assert value("failed_total", two.url) == 1
        assert value("ejections_total", two.url) == value("ejections_total", three.url) == 1
        assert [value("up", each.url) for each in replicas] == [1, 0, 0]
        assert values['gateway_remote_retries_total{model="m"}'] == 1
        assert values['gateway_remote_waiting{model="m"}'] == 0
        assert (await http.get("/ready")).status_code == 200
        await three.start()
        await until(http, {one.url: "up", two.url: "open", three.url: "up"})
        assert (await shown(http))[
            f'gateway_remote_returns_total{{model="m",replica="{three.url}"}}'
        ] == 1
        for stub in replicas:
            stub.healthy = False
        await until(http, dict.fromkeys((one.url, two.url, three.url), "down"))
        not_ready = await http.get("/ready")
        assert not_ready.status_code == 503
        assert one.url in not_ready.text


async def test_the_command_shows_replicas_that_are_dead_as_dead(
    stubs: Start, vocabulary: str, tmp_path: Path
) -> None:
    well, dead = replicas = await stubs(2)
    await dead.stop()
    file = tmp_path / "gateway.toml"
    file.write_text(to_toml(configuration(replicas, vocabulary)))
    command = [sys.executable, "-m", "gateway", "models", "--json", "--config", str(file)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(300):
        output, _ = await process.communicate()
    assert process.returncode == 0
    (row,) = json.loads(output)
    assert {part["replica"]: part["status"] for part in row["parts"]} == {
        well.url: "up",
        dead.url: "down",
    }
    assert "no connection" in row["parts"][1]["reason"]
