"""Two gateways, their store and an engine on a network that loses, delays and reorders packets.

Every run has one end, nothing is doubled, no stream is stuck, and all is well again when the network is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from asyncio import TaskGroup
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.redis_process import redis_server
from tests.e2e.virtual_network import Network, Node, missing

pytestmark = pytest.mark.slow
PORT = 8000
RULES = [
    {"when": "at length", "delay_ms": 20, "repeat": 150, "pieces": [{"text": "slow words "}]},
    {"pieces": [{"text": "quick words"}]},
]
ENGINE = """
[server]
host = "{address}"
port = 8000
allow_anonymous = true
store = "none"
[models.m]
engine = "scripted"
path = "{scenario}"
max_running = 1000
"""
GATEWAY = """
[server]
host = "{address}"
port = 8000
allow_anonymous = true
store = "{store}"
lease_seconds = 4
[stores.{store}]
url = "{url}"
connect_timeout = 1
timeout = 1
outage = 1
[models.m]
engine = "openai"
max_running = 1000
[models.m.openai]
base_url = "http://{engine}:8000/v1"
model = "m"
connect_timeout = 1
stall_timeout = 3
health_interval = 1
"""
LONG = {"model": "m", "input": "at length", "background": True, "stream": True}


@pytest.fixture(scope="module")
def network(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Network]:
    """With the store that the parameter names."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("partitions")
    with ExitStack() as stack:
        logs = stack.enter_context((folder / "log").open("wb"))
        made = stack.enter_context(closing(Network("client", "store", "engine", "one", "two")))
        nodes = made.nodes
        scenario = folder / "said.json"
        scenario.write_text(json.dumps(RULES))

        def start(name: str, *command: str | Path) -> None:
            process = nodes[name].popen(*command, stdout=logs, stderr=logs)
            stack.callback(process.wait)
            stack.callback(process.kill)

        if request.param == "redis":
            url = f"redis://{nodes['store'].address}:6379/0"
            options = ["--bind", nodes["store"].address, "--protected-mode", "no", "--save", ""]
            start("store", redis_server(), *options, "--dir", folder, "--port", "6379")
        else:
            postgres = started_postgres(nodes["store"])
            stack.callback(postgres.close)
            url = postgres.url
        for name in ("engine", "one", "two"):
            text = ENGINE if name == "engine" else GATEWAY
            for key, value in (
                ("address", nodes[name].address),
                ("scenario", str(scenario)),
                ("store", request.param),
                ("url", url),
                ("engine", nodes["engine"].address),
            ):
                text = text.replace(f"{{{key}}}", value)
            file = folder / f"{name}.toml"
            file.write_text(text)
            start(name, sys.executable, "-m", "gateway", "serve", "--config", file)
            nodes["client"].run(lambda name=name: ready(url_of(made, name)))
        yield made


def started_postgres(node: Node) -> PostgresProcess:
    """A PostgreSQL in the node's namespace: the thread that starts it is in there."""

    async def start() -> PostgresProcess:
        return PostgresProcess(address=node.address)

    try:
        return node.run(start)
    except FileNotFoundError as error:
        if "LITEGATE_NEED_POSTGRES" in os.environ:
            raise
        pytest.skip(str(error))


def url_of(network: Network, name: str) -> str:
    return f"http://{network.nodes[name].address}:{PORT}"


async def ready(url: str) -> None:
    async with asyncio.timeout(120), httpx.AsyncClient(timeout=5) as client:
        while True:
            try:
                if (await client.get(f"{url}/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)


class Stream:
    """What a client has of one response; it reads on wherever it can, until it has the end."""

    def __init__(self, begun_at: str, followed_at: str) -> None:
        self._urls = (begun_at, followed_at)
        self.frames = b""
        self.started = asyncio.Event()

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.frames.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    @property
    def id(self) -> str:
        found: str = self.events[0]["response"]["id"]
        return found

    async def read(self, client: httpx.AsyncClient) -> None:
        """Begin it at one gateway, leave, and follow it at the other, again wherever the connection breaks."""
        begun, followed = self._urls
        async with client.stream("POST", f"{begun}/v1/responses", json=LONG) as answer:
            assert answer.status_code == 200, await answer.aread()
            await self._take(answer, once=True)
        while not self.frames.endswith(b"[DONE]\n\n"):
            query = {"stream": "true", "starting_after": str(self.events[-1]["sequence_number"])}
            try:
                async with client.stream(
                    "GET", f"{followed}/v1/responses/{self.id}", params=query
                ) as answer:
                    if answer.status_code == 200:
                        await self._take(answer)
            except httpx.TransportError:
                pass
            self.frames = self.frames[: self.frames.rfind(b"\n\n") + 2]
            events = self.events
            if events[-1]["type"] == "error":  # the store was away: it is asked again
                last = self.frames.rfind(b"event: error\n")
                self.frames = self.frames[:last]
            await asyncio.sleep(0.1)

    async def _take(self, answer: httpx.Response, *, once: bool = False) -> None:
        async for chunk in answer.aiter_bytes():
            self.frames += chunk
            if b"\n\n" in self.frames:
                self.started.set()
                if once:
                    break
        self.frames = self.frames[: self.frames.rfind(b"\n\n") + 2]


def both(network: Network, one: str, other: str) -> None:
    network.lose(one, other)
    network.lose(other, one)


def reordered(network: Network, one: str, other: str) -> None:
    network.delay(one, other, 0.4)
    network.delay(other, one, 0.4)


class Fault(NamedTuple):
    """What is broken, and for how many seconds."""

    break_it: Callable[[Network], None]
    seconds: float
    heals: bool = True
    """Whether the network is well before the next fault."""
    begun_at: Sequence[str] = ("one", "two")
    """The gateways at which responses can be made when it begins."""


FAULTS = {
    "a gateway loses the store": Fault(lambda n: both(n, "one", "store"), 6.0),
    "the store's answers are lost": Fault(lambda n: n.lose("store", "one"), 3.0),
    "what is sent to the store is lost": Fault(lambda n: n.lose("one", "store"), 3.0),
    "the store is slow and out of order": Fault(lambda n: reordered(n, "one", "store"), 5.0),
    "a gateway loses the engine": Fault(lambda n: both(n, "one", "engine"), 5.0),
    "the engine's answers are out of order": Fault(lambda n: reordered(n, "engine", "one"), 3.0),
    "the store is lost for a moment": Fault(lambda n: both(n, "store", "one"), 1.0),
}
A_MINUTE = (
    Fault(lambda n: both(n, "one", "store"), 30.0, heals=False),
    Fault(lambda n: both(n, "two", "engine"), 30.0, begun_at=("two",)),
)
"""One gateway loses the store for a minute, and the other one the engine in its second half."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("network", ["redis"], indirect=True)
def test_each_run_has_one_end_whatever_is_lost(network: Network, fault: str) -> None:
    network.nodes["client"].run(lambda: play(network, [FAULTS[fault]]))


@pytest.mark.parametrize("network", ["redis"], indirect=True)
def test_each_run_has_one_end_after_a_minute(network: Network) -> None:
    network.nodes["client"].run(lambda: play(network, A_MINUTE))


@pytest.mark.parametrize("network", ["postgres"], indirect=True)
def test_each_run_has_one_end_with_postgres(network: Network) -> None:
    """All faults, one after the other."""
    network.nodes["client"].run(lambda: play(network, list(FAULTS.values())))


async def play(network: Network, faults: Sequence[Fault]) -> None:
    one, two = url_of(network, "one"), url_of(network, "two")
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    streams: list[Stream] = []
    reading: list[asyncio.Task[None]] = []
    async with httpx.AsyncClient(timeout=60, limits=limits) as client, TaskGroup() as group:
        for fault in faults:
            begun = [url_of(network, name) for name in fault.begun_at]
            for url in begun:
                await well(client, url)
            pairs = [*itertools.product(begun, (one, two))] * 2
            new = [Stream(*pair) for pair in pairs]
            reading += [group.create_task(stream.read(client)) for stream in new]
            async with asyncio.timeout(120):
                await asyncio.gather(*(stream.started.wait() for stream in new))
            streams += new
            before = network.lost + network.delayed
            fault.break_it(network)
            await asyncio.sleep(fault.seconds)
            if fault.heals:
                network.heal()
            assert network.lost + network.delayed > before
        async with asyncio.timeout(120):
            await asyncio.gather(*reading)
        for stream in streams:
            events = stream.events
            assert [each["sequence_number"] for each in events] == [*range(len(events))]
            final = fold(parse_sse(stream.frames))
            assert final["status"] in ("completed", "failed")
            for url in (one, two):
                got = await client.get(f"{url}/v1/responses/{stream.id}")
                assert got.json() == final
        for url in (one, two):
            await well(client, url)


async def well(client: httpx.AsyncClient, url: str) -> None:
    """Wait until the gateway answers with the engine and the store again."""
    await ready(url)
    async with asyncio.timeout(120):
        while True:
            asked = {"model": "m", "input": "hello"}
            answer = await client.post(f"{url}/v1/responses", json=asked)
            if answer.status_code == 200:
                break
            assert answer.status_code in (429, 503)
            await asyncio.sleep(0.2)
