"""Two gateway processes on one store: any of them serves what any of them runs, and ends what a dead one ran."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LEASE_SECONDS = 6
CONFIG = """
[server]
port = {port}
store = "STORE"
lease_seconds = LEASE
grace_period = {grace}
{server}

TABLE

[models.scripted]
engine = "scripted"
path = "SCENARIO"
max_running = 1000
"""
RULES = [
    {"when": "call a tool", "delay_ms": 15, "pieces": [
        {"reasoning": "The user wants the weather, and there is a tool for that which I shall call now."},
        {"text": "One moment."},
        {"call": {"name": "get_weather", "arguments": {"city": "Paris", "note": "a long note " * 20}}}]},
    {"when": "briefly", "delay_ms": 20, "repeat": 10, "pieces": [{"text": "brief words "}]},
    {"when": "at length", "delay_ms": 20, "repeat": 5000, "pieces": [{"text": "slow words "}]},
]  # fmt: skip
TOOL = {
    "type": "function", "name": "get_weather", "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip
WORDS = ("at length", "call a tool", "briefly")


@pytest.fixture
def config(any_shared_store: Any, tmp_path: Path) -> str:
    scenario = tmp_path / "replicas.json"
    scenario.write_text(json.dumps(RULES))
    return (
        CONFIG.replace("STORE", any_shared_store.name)
        .replace("TABLE", any_shared_store.table())
        .replace("LEASE", str(LEASE_SECONDS))
        .replace("SCENARIO", str(scenario))
    )


class Stream:
    """The events of one background response, as a client has them who comes back after its connection broke."""

    def __init__(self, words: str) -> None:
        self.body = {
            "model": "scripted", "input": words, "background": True, "stream": True, "tools": [TOOL],
        }  # fmt: skip
        self.frames = b""
        self.started = asyncio.Event()

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.frames.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    @property
    def id(self) -> str:
        response_id: str = self.events[0]["response"]["id"]
        return response_id

    async def begin(self, client: httpx.AsyncClient, url: str) -> None:
        """Read until the end, or until the server is gone; keep the frames that came whole."""
        try:
            await self._read(client.stream("POST", f"{url}/v1/responses", json=self.body))
        except httpx.TransportError:
            self.frames = self.frames[: self.frames.rfind(b"\n\n") + 2]

    async def resume(self, client: httpx.AsyncClient, url: str) -> None:
        """Read on where it broke off."""
        if self.frames.endswith(b"[DONE]\n\n"):
            return
        query = {"stream": "true", "starting_after": str(self.events[-1]["sequence_number"])}
        await self._read(client.stream("GET", f"{url}/v1/responses/{self.id}", params=query))

    async def _read(self, request: Any) -> None:
        async with request as answer:
            if answer.status_code != 200:
                raise AssertionError(await answer.aread())
            async for chunk in answer.aiter_bytes():
                self.frames += chunk
                if b"\n\n" in self.frames:
                    self.started.set()


def http() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=60, limits=limits)


async def test_a_replica_ends_what_a_killed_one_ran(
    start_server: Any, config: str, any_shared_store: Any
) -> None:
    """SIGKILL amid a hundred background streams, resumed on the other: no gap, no duplicate, one end each."""
    first, second = start_server(config), start_server(config)
    streams = [Stream(WORDS[number % len(WORDS)]) for number in range(100)]
    async with http() as client:
        reading = []
        for stream in streams:
            reading.append(asyncio.create_task(stream.begin(client, first.url)))
            await asyncio.sleep(0.01)
        async with asyncio.timeout(120):
            await asyncio.gather(*(stream.started.wait() for stream in streams))
        first.stop(signal.SIGKILL)
        await asyncio.gather(*reading)
        broken = [stream for stream in streams if not stream.frames.endswith(b"[DONE]\n\n")]
        assert len(broken) > 30
        async with asyncio.timeout(120):
            await asyncio.gather(*(stream.resume(client, second.url) for stream in streams))
        lost = 0
        for stream in streams:
            final = fold(parse_sse(stream.frames))
            got = (await client.get(f"{second.url}/v1/responses/{stream.id}")).json()
            assert got == final
            if final["status"] == "failed":
                lost += 1
                assert "owner_lost" in final["error"]["message"]
            else:
                assert final["status"] == "completed"
        assert lost > 30
        # The last one is given up after its readers have seen its end.
        await wait_until_async(lambda: any_shared_store.leases() == 0, "no leases")


async def test_any_replica_follows_and_cancels(start_server: Any, config: str) -> None:
    first, second = start_server(config), start_server(config)
    stream = Stream("at length")
    elsewhere = Stream("at length")
    async with http() as client:
        reading = asyncio.create_task(stream.begin(client, first.url))
        async with asyncio.timeout(60):
            await stream.started.wait()
        elsewhere.frames = stream.frames[: stream.frames.find(b"\n\n") + 2]
        elsewhere.started.clear()
        following = asyncio.create_task(elsewhere.resume(client, second.url))
        async with asyncio.timeout(60):
            await elsewhere.started.wait()
        answer = await client.post(f"{second.url}/v1/responses/{stream.id}/cancel")
        cancelled = answer.json()
        assert cancelled["status"] == "cancelled"
        async with asyncio.timeout(60):
            await asyncio.gather(reading, following)
        assert elsewhere.frames == stream.frames
        assert fold(parse_sse(stream.frames)) == cancelled
        again = await client.post(f"{first.url}/v1/responses/{stream.id}/cancel")
        assert again.json() == cancelled


async def test_a_conversation_goes_on_at_any_replica(start_server: Any, config: str) -> None:
    urls = [start_server(config).url for _ in range(2)]
    async with http() as client:
        previous = None
        for turn in range(4):
            body = {
                "model": "scripted",
                "input": f"briefly {turn}",
                "previous_response_id": previous,
            }
            answer = await client.post(f"{urls[turn % 2]}/v1/responses", json=body)
            assert answer.status_code == 200
            previous = answer.json()["id"]
        deleted = await client.delete(f"{urls[0]}/v1/responses/{previous}")
        assert deleted.json()["deleted"] is True
        assert (await client.get(f"{urls[1]}/v1/responses/{previous}")).status_code == 404
