"""SIGHUP and `gateway reload` read the configuration again, and no stream breaks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP"),
]

CONFIG = """
[server]
port = {port}
{server}

[models.slow]
engine = "scripted"
path = "{scenario}"
max_running = 2000
aliases = ["alias"]

[models.other]
engine = "scripted"
"""
WORKERS = """
[server]
port = {port}
workers = 2
store = "none"

[models.slow]
engine = "scripted"
path = "{scenario}"
"""
USED = "is used now"
KEPT = "the configuration stays as it was"
SLOW = {"model": "slow", "input": "go slowly", "stream": True, "max_output_tokens": 40}


def change(server: Any, *pairs: tuple[str, str]) -> None:
    text = server.file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    server.file.write_text(text)


def reload(server: Any, told: str = USED, *, times: int = 1) -> None:
    before = server.log.count(told)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log.count(told) >= before + times)


def names(server: Any) -> list[str]:
    with server.http() as http:
        return [each["id"] for each in http.get("/v1/models").json()["data"]]


def status(server: Any, model: str) -> int:
    with server.http() as http:
        answer = http.post("/v1/responses", json={"model": model, "input": "Hi"})
        return int(answer.status_code)


def test_models_and_aliases_change(start_server: Any) -> None:
    server = start_server(CONFIG)
    change(server, ("[models.other]", "[models.new]"), ('"alias"', '"renamed"'))
    reload(server)
    assert names(server) == ["slow", "new"]
    [line] = [line for line in server.log.splitlines() if USED in line]
    assert line.endswith("; changed: models.slow, models.new (new), models.other (removed)")
    assert [status(server, each) for each in ("slow", "renamed", "new")] == [200] * 3
    assert [status(server, each) for each in ("alias", "other")] == [404] * 2


def test_keys_change(start_server: Any) -> None:
    key = '[[server.api_keys]]\nname = "a"\nsha256 = "{}"'
    one, two = (hashlib.sha256(each).hexdigest() for each in (b"one", b"two"))
    server = start_server(CONFIG, server=key.format(one))

    def allowed(given: str) -> bool:
        headers = {"authorization": f"Bearer {given}"}
        return httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200

    assert (allowed("one"), allowed("two")) == (True, False)
    change(server, (one, two))
    reload(server)
    assert (allowed("one"), allowed("two")) == (False, True)
    change(server, (key.format(two), ""))
    reload(server, KEPT)
    assert (allowed("one"), allowed("two"), allowed("x")) == (False, True, False)
    assert "the last API key cannot be removed" in server.log


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[models.other]", "[models.other", "gateway.toml"),
        ("max_running = 2000", "max_runing = 2000", 'did you mean "max_running"?'),
        ("[models.other]\nengine", "[models.other]\npath = '/not/there'\nengine", "/not/there"),
        ("[models.other]", "[tools.nothing]\n[models.other]", "nothing"),
    ],
)
def test_a_wrong_file_changes_nothing(start_server: Any, old: str, new: str, sentence: str) -> None:
    server = start_server(CONFIG)
    change(server, ("[server]", "[server]\nmax_body_bytes = 5"), (old, new))
    reload(server, KEPT)
    [line] = [line for line in server.log.splitlines() if KEPT in line]
    assert sentence in line
    assert "Traceback" not in server.log
    assert names(server) == ["slow", "other"]
    assert [status(server, each) for each in ("slow", "alias", "other")] == [200] * 3
    server.file.write_text(server.file.read_text().replace(new, old).replace("= 5\n", "= 50000\n"))
    reload(server)


def test_what_needs_a_restart_is_named(start_server: Any) -> None:
    server = start_server(CONFIG)
    change(server, ("[server]", "[server]\ngrace_period = 7\nstore = 'none'\nping_interval = 3"))
    reload(server)
    [line] = [line for line in server.log.splitlines() if "after a restart only" in line]
    assert line.endswith(": server.store, server.grace_period")
    with server.http() as http:
        made = http.post("/v1/responses", json={"model": "slow", "input": "Hi"}).json()["id"]
        assert http.get(f"/v1/responses/{made}").status_code == 200, "the store is still there"


async def _streams(url: str, count: int, meanwhile: Callable[[], Any]) -> list[bytes]:
    """The streams of `count` clients. When all have begun, `meanwhile` is called in a thread."""
    begun = asyncio.Barrier(count + 1)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=180, limits=limits) as client:

        async def one() -> bytes:
            got = b""
            async with client.stream("POST", "/v1/responses", json=SLOW) as answer:
                assert answer.status_code == 200
                async for part in answer.aiter_bytes():
                    if not got:
                        await begun.wait()
                    got += part
            return got

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one()) for _ in range(count)]
            await begun.wait()
            await asyncio.to_thread(meanwhile)
        return [task.result() for task in tasks]


@pytest.mark.parametrize("count", [100, 1000])
def test_no_stream_breaks(start_server: Any, count: int) -> None:
    server = start_server(CONFIG)

    def reload_twice() -> None:
        # Another engine, settings only, and the model removed while its streams run.
        change(server, ("max_running = 2000", "max_running = 2000\nmax_model_len = 9000"))
        reload(server)
        change(server, ("max_running = 2000", "max_running = 1500"))
        reload(server)
        change(server, ("[models.slow]", "[models.replaced]"))
        reload(server)
        assert status(server, "slow") == 404
        assert status(server, "replaced") == 200

    streams = asyncio.run(_streams(server.url, count, reload_twice))
    finals = [fold(parse_sse(each)) for each in streams]
    assert {(final["status"], final["usage"]["output_tokens"]) for final in finals} == {
        ("incomplete", 40)
    }
    assert names(server) == ["replaced", "other"]
    assert "Traceback" not in server.log


def test_all_workers_read_it_again(start_server: Any) -> None:
    server = start_server(WORKERS)
    wait_until(
        lambda: server.log.count("Uvicorn running") == 2 or server.log.count("Started server") == 2
    )
    change(server, ("[models.slow]", "[models.new]"))
    reload(server, times=2)
    for _ in range(10):
        assert names(server) == ["new"]
    assert server.stop() == 0


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", "reload", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")},
        check=False,
    )


def test_the_command_finds_the_server_of_a_file(start_server: Any, tmp_path: Path) -> None:
    server = start_server(CONFIG)
    change(server, ("[models.other]", "[models.new]"))
    done = command(cwd=server.file.parent)
    assert done.returncode == 0, done.stderr
    assert f"process id {server.process.pid}" in done.stdout
    wait_until(lambda: USED in server.log)
    assert names(server) == ["slow", "new"]
    change(server, ("[models.new]", "[models.new"))
    wrong = command("--config", str(server.file), cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "gateway.toml" in wrong.stderr
    change(server, ("[models.new", "[models.new]"))
    assert server.stop() == 0
    gone = command("--config", str(server.file), cwd=tmp_path)
    assert gone.returncode == 2
    assert "No server of this user runs" in gone.stderr
    nothing = command(cwd=tmp_path)
    assert (nothing.returncode, "no configuration file" in nothing.stderr) == (2, True)
