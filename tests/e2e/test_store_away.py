"""The server of the store goes and comes: what is answered meanwhile, and what becomes of what was running."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.free_ports import free_port
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.redis_process import RedisProcess
from tests.waiting import wait_until_async

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CONFIG = """
[server]
port = {port}
store = "STORE"
lease_seconds = 2
grace_period = {grace}
{server}

TABLE

[models.scripted]
engine = "scripted"
path = "SCENARIO"
max_running = 1000
"""
RULES = [
    {"when": "at length", "delay_ms": 20, "repeat": 100, "pieces": [{"text": "slow words "}]},
    {"when": "endlessly", "delay_ms": 20, "repeat": 100_000, "pieces": [{"text": "slow words "}]},
    {"pieces": [{"text": "quick words"}]},
]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "away.json"
    file.write_text(json.dumps(RULES))
    return file


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis that has nothing any more when it comes back."""
    made = RedisProcess(tmp_path)
    yield made
    made.kill()


def configured(store: Any, scenario: Path, *, outage: float, timeout: float = 20) -> str:
    """`timeout` is that of a store whose server is there. One that is killed refuses connections at once."""
    table = store.table(connect_timeout=timeout, timeout=timeout, outage=outage)
    return (
        CONFIG.replace("STORE", store.name)
        .replace("TABLE", table)
        .replace("SCENARIO", str(scenario))
    )


async def streams(
    client: httpx.AsyncClient, url: str, number: int, said: str = "at length"
) -> list[asyncio.Task[bytes]]:
    """So many streams that have begun; each task ends with the whole body."""
    request = {**LONG, "input": said}
    begun = [asyncio.Event() for _ in range(number)]
    reading = [asyncio.create_task(stream(client, url, request, each)) for each in begun]
    async with asyncio.timeout(120):
        await asyncio.gather(*(each.wait() for each in begun))
    return reading


async def stream(
    client: httpx.AsyncClient, url: str, request: dict[str, Any], has_begun: asyncio.Event
) -> bytes:
    """The whole body of a stream. `has_begun` is set when it has an event."""
    body = b""
    async with client.stream("POST", f"{url}/v1/responses", json=request) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for part in answer.aiter_bytes():
            body += part
            if b"\n\n" in body:
                has_begun.set()
    return body


def response_id(body: bytes) -> str:
    first = json.loads(body.split(b"\n", 2)[1].removeprefix(b"data: "))
    found: str = first["response"]["id"]
    return found


async def read(client: httpx.AsyncClient, url: str, has_begun: asyncio.Event) -> bytes:
    """The whole body of a stream that is followed. `has_begun` is set when it has an event."""
    body = b""
    async with client.stream("GET", url) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for part in answer.aiter_bytes():
            body += part
            if b"\n\n" in body:
                has_begun.set()
    return body


async def begun(client: httpx.AsyncClient, url: str, request: dict[str, Any]) -> str:
    """The id of a response that was begun, and that its client has left."""
    body = b""
    async with client.stream("POST", f"{url}/v1/responses", json=request) as answer:
        async for part in answer.aiter_bytes():
            body += part
            if b"\n\n" in body:
                return response_id(body)
    raise AssertionError("the stream was empty")


async def is_missed(client: httpx.AsyncClient, url: str) -> bool:
    """Whether the gateway has noticed that its store is away."""
    return (await client.get(f"{url}/ready")).status_code == 503


LONG = {"model": "scripted", "input": "at length", "background": True, "stream": True}


async def test_without_its_server_only_what_is_not_stored_is_served(
    start_server: Any, served_store: Any, scenario: Path
) -> None:
    server = start_server(configured(served_store, scenario, outage=0))
    body: dict[str, Any] = {"model": "scripted", "input": "hello"}
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        first = (await client.post("/v1/responses", json=body)).json()
        served_store.process.kill()
        for request in (body, {**body, "stream": True}, {**body, "background": True}):
            answer = await client.post("/v1/responses", json=request)
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "store_unavailable"
            assert "store: false" in answer.json()["error"]["message"]
        assert (await client.get(f"/v1/responses/{first['id']}")).status_code == 503
        for streamed in (False, True):
            request = {**body, "store": False, "stream": streamed}
            assert (await client.post("/v1/responses", json=request)).status_code == 200
        served_store.process.start()

        async def served() -> bool:
            return (await client.post("/v1/responses", json=body)).status_code == 200

        await wait_until_async(served, "the store is used again")
        assert (await client.get(f"/v1/responses/{first['id']}")).json() == first


async def test_a_short_absence_is_outlived(
    start_server: Any, served_store: Any, scenario: Path
) -> None:
    """It restarts in mid-stream, and has lost nothing: all streams go on, without gap or duplicate."""
    server = start_server(configured(served_store, scenario, outage=600))
    async with httpx.AsyncClient(timeout=120) as client:
        reading = await streams(client, server.url, 20)
        served_store.process.kill()
        await wait_until_async(lambda: is_missed(client, server.url), "the absence is noticed")
        served_store.process.start()
        async with asyncio.timeout(120):
            bodies = await asyncio.gather(*reading)
        for body in bodies:
            final = fold(parse_sse(body))
            assert final["status"] == "completed"
            got = await client.get(f"{server.url}/v1/responses/{final['id']}")
            assert got.json() == final


async def test_a_long_absence_ends_in_failed_responses(
    start_server: Any, served_store: Any, scenario: Path
) -> None:
    """Nothing hangs; when it is back, each response has one end, and its readers see it."""
    configuration = configured(served_store, scenario, outage=0.2)
    # The readers of the first response that ends wait for the last one, too.
    server = start_server(configuration, server="store_wait = 600")
    async with httpx.AsyncClient(timeout=120) as client:
        reading = await streams(client, server.url, 20, "endlessly")
        served_store.process.kill()
        # One that tries to write only once the store is back goes on, as it should. The log is read, since requests would
        # slow down a gateway that has little time.
        given_up = "another process ends it"
        await wait_until_async(lambda: server.log.count(given_up) == 20, "all are given up", 600)
        served_store.process.start()
        async with asyncio.timeout(120):
            bodies = await asyncio.gather(*reading)
        for body in bodies:
            final = fold(parse_sse(body))
            assert final["status"] == "failed"
            got = await client.get(f"{server.url}/v1/responses/{final['id']}")
            assert got.json() == final
        # The last one is given up after its readers have seen its end.
        await wait_until_async(lambda: served_store.leases() == 0, "no leases")


async def test_a_stream_does_not_wait_for_its_store_for_ever(
    start_server: Any, served_store: Any, scenario: Path
) -> None:
    """It ends with an error, and goes on where it was when the store is back."""
    configuration = configured(served_store, scenario, outage=0.2)
    server = start_server(configuration, server="store_wait = 1")
    async with httpx.AsyncClient(timeout=120) as client:
        reading = await streams(client, server.url, 5, "endlessly")
        served_store.process.kill()
        async with asyncio.timeout(120):
            bodies = await asyncio.gather(*reading)
        served_store.process.start()
        for body in bodies:
            events = parse_sse(body)
            assert [each["sequence_number"] for each in events] == [*range(len(events))]
            assert (events[-1]["type"], events[-1]["code"]) == ("error", "store_unavailable")
            assert body.endswith(b"data: [DONE]\n\n")
        for body in bodies:
            *before, last = parse_sse(body)
            where = f"{server.url}/v1/responses/{response_id(body)}"
            after = last["sequence_number"] - 1
            rest: list[dict[str, Any]] = []

            async def followed(url: str = where, after: int = after) -> bool:
                nonlocal rest
                answer = await client.get(f"{url}?stream=true&starting_after={after}")
                rest = parse_sse(answer.content) if answer.status_code == 200 else []
                return bool(rest) and rest[-1]["type"] == "response.failed"

            await wait_until_async(followed, "the end of the response")
            assert fold([*before, *rest])["status"] == "failed"


async def test_what_redis_forgot_is_gone(
    start_server: Any, forgetful: RedisProcess, scenario: Path
) -> None:
    """Readers are told, here and at another gateway; what they read of is a 404."""
    table = f'[stores.redis]\nurl = "{forgetful.url}"\n'
    config = CONFIG.replace("STORE", "redis").replace("TABLE", table)
    config = config.replace("SCENARIO", str(scenario))
    # Longer than a slow machine stands still, or the other gateway would take the responses.
    config = config.replace("lease_seconds = 2", "lease_seconds = 60")
    server, other = start_server(config), start_server(config)
    async with httpx.AsyncClient(timeout=120) as client:
        reading = await streams(client, server.url, 10, "endlessly")
        queued = {**LONG, "input": "endlessly"}
        following, followed = [], [asyncio.Event() for _ in range(10)]
        streamed = [asyncio.create_task(begun(client, server.url, queued)) for _ in range(10)]
        for first, has_begun in zip(await asyncio.gather(*streamed), followed, strict=True):
            url = f"{other.url}/v1/responses/{first}?stream=true"
            following.append(asyncio.create_task(read(client, url, has_begun)))
        async with asyncio.timeout(120):
            await asyncio.gather(*(each.wait() for each in followed))
        forgetful.kill()
        forgetful.start()
        async with asyncio.timeout(120):
            bodies = await asyncio.gather(*reading, *following)
        for body in bodies:
            events = parse_sse(body)
            assert [each["sequence_number"] for each in events] == [*range(len(events))]
            assert events[-1]["type"] == "error"
            assert events[-1]["code"] == "response_not_found"
            got = await client.get(f"{server.url}/v1/responses/{response_id(body)}")
            assert got.status_code == 404
            assert body.endswith(b"data: [DONE]\n\n")


async def test_a_server_that_hangs_is_one_that_is_away(
    start_server: Any, served_store: Any, scenario: Path
) -> None:
    # A slow machine takes long for what a store that is there answers, too.
    server = start_server(configured(served_store, scenario, outage=600, timeout=5))
    body = {"model": "scripted", "input": "hello"}
    async with httpx.AsyncClient(timeout=120) as client:
        [reading] = await streams(client, server.url, 1)
        served_store.process.pause()
        answer = await client.post(f"{server.url}/v1/responses", json=body)
        assert answer.status_code == 503
        served_store.process.resume()
        async with asyncio.timeout(120):
            final = fold(parse_sse(await reading))
        assert final["status"] == "completed"


@pytest.mark.parametrize("kind", ["redis", "redis+sentinel", "redis+cluster", "postgres"])
def test_a_start_without_its_server_is_one_sentence(tmp_path: Path, kind: str) -> None:
    store = kind.partition("+")[0]
    path = "/mymaster" if kind == "redis+sentinel" else ""
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"""
[server]
store = "{store}"
[stores.{store}]
url = "{kind}://ada:secret@127.0.0.1:{free_port()}{path}"
[models.a]
engine = "scripted"
"""
    )
    # Not many minutes of time-outs; the rest is a busy machine.
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    told = "".join(line for line in done.stderr.splitlines(True) if "INFO" not in line)
    assert f"[stores.{store}]" in told
    assert "127.0.0.1" in told
    assert "secret" not in told
    assert "Traceback" not in told
    assert len(told.splitlines()) <= 2
    assert len(told) < 400
