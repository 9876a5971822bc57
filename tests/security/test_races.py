"""One end for each response, nothing that comes back after it was deleted, and no run that is made twice."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import msgspec
import pytest

from gateway.answers.responses.answer import ResponseAnswer
from gateway.answers.responses.background import BackgroundRuns
from gateway.answers.responses.rerun import recreate_run
from gateway.config import Config, ModelConfig
from gateway.plugins.loading import load_plugins
from gateway.plugins.protocols import StoredResponse
from gateway.startup.service_opening import open_services
from gateway.wire.common import encode
from gateway_testing.free_ports import free_port
from gateway_testing.grammar import parse_sse
from gateway_testing.redis_process import RedisProcess
from gateway_testing.server import run_gateway
from gateway_testing.store_records import record
from tests.security.replica_processes import replica
from tests.waiting import wait_until

Json: TypeAlias = dict[str, Any]
ENDS = {"completed", "incomplete", "failed", "cancelled"}
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def store_in(redis: RedisProcess) -> Json:
    return {"url": redis.url, "connect_timeout": 30, "timeout": 60}


@pytest.fixture(scope="module", params=["memory", "redis"])
def url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis: RedisProcess
) -> Iterator[str]:
    rules = [{"when": "", "delay_ms": 10, "repeat": 10, "pieces": [{"text": "some words "}]}]
    config: Json = {
        # A replay has no comments for clients that wait; and a Redis that a busy machine holds up is not away.
        "server": {"store": request.param, "ping_interval": 0},
        "stores": {"redis": store_in(redis)} if request.param == "redis" else {},
        "models": {"m": {"engine": "scripted", "max_running": 8, "scripted": {"rules": rules}}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway.base_url


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
async def test_whatever_comes_together_each_response_has_one_end(url: str, seed: int) -> None:
    """Cancelling, deleting, completing and following, at random times; a deleted one stays gone."""
    chance = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        conversation = (await client.post("/conversations", json={})).json()["id"]

        async def life(number: int) -> None:
            body = {"model": "m", "input": f"say {number}", "background": True, "stream": True}
            if number % 3 == 0:
                body["conversation"] = conversation
            frames, ids = b"", asyncio.get_running_loop().create_future()

            async def follow() -> None:
                nonlocal frames
                async with client.stream("POST", "/responses", json=body) as stream:
                    async for chunk in stream.aiter_bytes():
                        frames += chunk
                        if not ids.done() and b"\n\n" in frames:
                            data = frames.partition(b"data: ")[2].partition(b"\n")[0]
                            ids.set_result(json.loads(data)["response"]["id"])

            following = asyncio.create_task(follow())
            path = f"/responses/{await ids}"
            deeds = chance.choice(
                [["cancel"], ["delete"], ["cancel", "cancel"], ["cancel", "delete"], ["delete", "delete"], []]
            )  # fmt: skip

            async def act(deed: str) -> httpx.Response:
                await asyncio.sleep(chance.uniform(0, 0.4))
                if deed == "cancel":
                    return await client.post(f"{path}/cancel", json={})
                return await client.delete(path)

            answers = await asyncio.gather(*map(act, deeds))
            for deed, answer in zip(deeds, answers, strict=True):
                assert answer.status_code in (200, 404), (deed, answer.text)
            await asyncio.wait_for(following, 120)
            if "delete" in deeds:
                deletions = [a for d, a in zip(deeds, answers, strict=True) if d == "delete"]
                assert sum(answer.status_code == 200 for answer in deletions) == 1
                for _ in range(5):
                    assert (await client.get(path)).status_code == 404
                    await asyncio.sleep(0.1)
                return
            ends = [event for event in parse_sse(frames) if event["type"] in TERMINAL]
            assert len(ends) == 1
            assert ends[0]["response"]["status"] in ENDS
            for _ in range(3):
                assert (await client.get(path)).json() == ends[0]["response"]
                await asyncio.sleep(0.1)
            for answer in answers:  # who cancels is told the end that everybody sees
                assert answer.json() == ends[0]["response"]
            replay = await client.get(path, params={"stream": "true"})
            assert replay.content == frames

        await asyncio.gather(*(life(number) for number in range(30)))
        listed = (await client.get(f"/conversations/{conversation}/items?limit=100")).json()["data"]
        assert Counter(item["role"] for item in listed)["user"] * 2 == len(listed), (
            "a response is in its conversation whole, or not at all"
        )


@pytest.mark.anyio
async def test_what_a_slow_owner_has_begun_since_is_not_run_again() -> None:
    """It was found queued; whoever takes it over must not run it if it is queued no longer."""
    body = encode({"model": "m", "input": "hi", "background": True})
    queued = record(status="queued", request=body)
    async with AsyncExitStack() as stack:
        config = Config(models={"m": ModelConfig(engine="scripted")})
        services = await open_services(config, load_plugins(), stack)
        store = services.store
        assert store is not None
        taken = asyncio.Event()

        async def made(found: StoredResponse) -> ResponseAnswer:
            run = await recreate_run(found, services)
            begun = msgspec.structs.replace(found.response, status="in_progress")
            slow = msgspec.structs.replace(found, response=begun)
            assert await store.advance(slow, expected={"queued"}), "the owner goes on just now"
            taken.set()
            return run

        await store.put(queued)
        await store.lease("slow", [queued.id], seconds=0.01)
        background = BackgroundRuns(store, lease_seconds=1, recreate_run=made)
        async with background.maintenance():
            async with asyncio.timeout(120):
                await taken.wait()
            await asyncio.sleep(0.5)
            found = await store.get(queued.id)
        assert found is not None
        assert (found.response.status, found.attempt) == ("in_progress", 0)


PAYMENTS = 60
LEASE_SECONDS = 5
"""Longer than a busy machine holds up a replica: of those that are there, none is to be taken for lost."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "paused"])
def test_no_run_is_made_twice_when_its_owner_is_lost_under_load(
    redis: RedisProcess, tmp_path: Path, fault: str
) -> None:
    """Each run pays once at most, also where its owner was only slow and goes on; and each has one end everywhere."""
    file, port = tmp_path / "payments", free_port()
    script = Path(__file__).parent / "payments_mcp_server.py"
    rules: list[Json] = [{"when": "Paid", "pieces": [{"text": "It is paid."}]}]
    rules += [
        {
            "when": f"pay number {number}.",
            "delay_ms": 100,
            "pieces": [{"call": {"name": "pay", "arguments": {"amount": number, "seconds": 0.1}}}],
        }
        for number in range(PAYMENTS)
    ]
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(rules))
    url = f"http://127.0.0.1:{port}/mcp"
    config: Json = {
        "server": {"store": "redis", "lease_seconds": LEASE_SECONDS, "rerun_lost": True},
        "stores": {"redis": {**store_in(redis), "prefix": fault}},
        "models": {"m": {"engine": "scripted", "path": str(scenario), "max_running": 4}},
        "tools": {"mcp": {"servers": {"bank": {"url": url, "offer": True}}}},
    }
    bank = subprocess.Popen(
        [sys.executable, str(script), str(file), str(port)], stderr=subprocess.DEVNULL
    )
    with ExitStack() as stack:
        stack.callback(bank.wait)
        stack.callback(bank.kill)

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, "the MCP server's start")
        first_url, first = stack.enter_context(replica(config, tmp_path / "1"))
        others = [stack.enter_context(replica(config, tmp_path / name))[0] for name in "23"]
        client = stack.enter_context(httpx.Client(timeout=60))
        ids = []
        for number in range(PAYMENTS):
            body = {"model": "m", "input": f"pay number {number}.", "background": True}
            ids.append(client.post(f"{first_url}/responses", json=body).json()["id"])
        deleted = ids[-1]
        wait_until(lambda: file.exists() and len(file.read_text().split()) >= 4, "some payments")
        if fault == "killed":
            first.send_signal(signal.SIGKILL)
            first.wait()
        else:
            first.send_signal(signal.SIGSTOP)
            time.sleep(LEASE_SECONDS + 0.3)
            first.send_signal(signal.SIGCONT)
        assert client.delete(f"{others[0]}/responses/{deleted}").status_code == 200

        def found(url: str, response_id: str) -> Json:
            answer: Json = client.get(f"{url}/responses/{response_id}").json()
            return answer

        for response_id in ids[:-1]:
            wait_until(lambda r=response_id: found(others[0], r)["status"] in ENDS, "an end")  # type: ignore[misc]
        time.sleep(1)
        ends = [found(others[0], each) for each in ids[:-1]]
        assert ends == [found(others[1], each) for each in ids[:-1]]
        assert client.get(f"{others[0]}/responses/{deleted}").status_code == 404
        paid = Counter(file.read_text().split())
        assert max(paid.values()) == 1, "no payment was made twice"
        completed = [str(n) for n, end in enumerate(ends) if end["status"] == "completed"]
        assert set(completed) <= set(paid)
        assert len(completed) > PAYMENTS // 3, "what waited was run by the others"
        for end in ends:
            assert end["status"] in ("completed", "failed"), end
