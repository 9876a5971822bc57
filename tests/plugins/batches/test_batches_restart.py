"""Batches outlive their process, and are shared by processes: no line is lost, and none has two results."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from gateway_testing.free_ports import free_port
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.redis_process import RedisProcess
from gateway_testing.server import to_toml
from tests.plugins.batches.batch_client import SECONDS, Batches, configuration, line

pytestmark = pytest.mark.slow

RULES = [{"when": "line", "pieces": [{"text": "word "}], "repeat": 5, "delay_ms": 10}]


class Process:
    """A gateway process."""

    def __init__(self, config: dict[str, Any], folder: Path, name: str) -> None:
        self.port = free_port()
        file = folder / f"{name}.toml"
        file.write_text(to_toml(config))
        self._log = folder / f"{name}.log"
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
        with self._log.open("w") as out:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=out, stderr=subprocess.STDOUT
            )
        give_up = time.monotonic() + SECONDS
        while not self._listens():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < give_up, self.log
            time.sleep(0.05)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def lines_run(self) -> int:
        """How many requests to /v1/responses this process has answered with 200."""
        return sum(
            "route=/v1/responses" in each and "status=200" in each for each in self.log.splitlines()
        )

    @contextmanager
    def batches(self) -> Iterator[Batches]:
        url = f"http://127.0.0.1:{self.port}/v1"
        with OpenAI(base_url=url, api_key="key-ada", max_retries=0) as client:
            yield Batches(client)

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=SECONDS)


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    """All are killed at the end."""
    started: list[Process] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.fixture(params=["sqlite", "redis", "postgres", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of each store."""
    name = request.param
    server: dict[str, Any] = {"store": name, "grace_period": 1, "access_log": True}
    if name == "redis":
        redis = RedisProcess(tmp_path)
        yield {"server": server, "stores": {"redis": {"url": redis.url}}}
        redis.kill()
    elif name == "postgres":
        process: PostgresProcess = request.getfixturevalue("postgres_process")
        yield {"server": server, "stores": {"postgres": {"url": process.url}}}
    else:
        path = {"sqlite": {"path": str(tmp_path / "store.sqlite")}} if name == "sqlite" else {}
        yield {"server": server, "stores": path}


def config_of(folder: Path, store: dict[str, Any]) -> dict[str, Any]:
    config = configuration(
        folder / "files", apis={"batches": {"lease_seconds": 2, "concurrency": 4}}, **store
    )
    config["models"]["m"]["scripted"] = {"rules": RULES}
    return config


def stored_results(folder: Path) -> int:
    """Number of lines that have a result."""
    path = folder / "files" / "batches.sqlite3"
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        [number] = connection.execute("SELECT count(*) FROM lines WHERE state != 0").fetchone()
    return int(number)


def check_complete(batches: Batches, ended: Any, number: int) -> None:
    """Each line has exactly one result."""
    assert ended.status == "completed", ended
    assert ended.request_counts.model_dump() == {"total": number, "completed": number, "failed": 0}
    found = [each["custom_id"] for each in batches.output(ended)]
    assert found == [f"r{each}" for each in range(number)]


def test_a_killed_process_is_continued_where_it_was(
    tmp_path: Path, store: dict[str, Any], processes: list[Process]
) -> None:
    number = 400
    config = config_of(tmp_path, store)
    first = Process(config, tmp_path, "first")
    processes.append(first)
    with first.batches() as ada:
        made = ada.create([line(f"r{each}", "line") for each in range(number)])
        ada.until(made, lambda now: now.request_counts.completed >= 10)
    first.end()
    kept = stored_results(tmp_path)
    assert 10 <= kept < number
    second = Process(config, tmp_path, "second")
    processes.append(second)
    with second.batches() as ada:
        ended = ada.ended(ada.client.batches.retrieve(made.id))
        check_complete(ada, ended, number)
    # Those without a stored result were run again, and no others.
    assert second.lines_run == number - kept


def test_a_process_that_stops_hands_its_batches_over(
    tmp_path: Path, processes: list[Process]
) -> None:
    number = 100
    config = config_of(tmp_path, {"server": {"store": "memory", "grace_period": 20}})
    config["apis"]["batches"]["lease_seconds"] = 600  # it does not expire: it is given back
    first = Process(config, tmp_path, "first")
    processes.append(first)
    with first.batches() as ada:
        made = ada.create([line(f"r{each}", "line") for each in range(number)])
        ada.until(made, lambda now: now.request_counts.completed >= 5)
    first.end(signal.SIGTERM)
    kept = stored_results(tmp_path)
    assert first.lines_run == kept, "what had begun was finished and stored"
    second = Process(config, tmp_path, "second")
    processes.append(second)
    with second.batches() as ada:
        check_complete(ada, ada.ended(ada.client.batches.retrieve(made.id)), number)
    assert second.lines_run == number - kept


def test_a_kill_at_any_moment_loses_no_line(tmp_path: Path, processes: list[Process]) -> None:
    """Several kills: while the file is read, while lines run, while the files are written."""
    number = 400
    config = config_of(tmp_path, {"server": {"store": "memory"}})
    config["apis"]["batches"]["lease_seconds"] = 1
    config["models"]["m"]["scripted"] = {"rules": []}
    made: Any = None
    for turn in range(7):
        process = Process(config, tmp_path, f"p{turn}")
        processes.append(process)
        with process.batches() as ada:
            if made is None:
                made = ada.create([line(f"r{each}") for each in range(number)])
            if turn == 6:
                check_complete(ada, ada.ended(ada.client.batches.retrieve(made.id)), number)
        time.sleep(0.05 * turn)  # a different moment each time, whatever it is
        process.end()
    names = os.listdir(tmp_path / "files")
    assert "batches.sqlite3" in names


def test_two_processes_share_batches_and_run_each_line_once(
    tmp_path: Path, processes: list[Process]
) -> None:
    redis = RedisProcess(tmp_path)
    number, several = 40, 10
    try:
        store = {"server": {"store": "redis"}, "stores": {"redis": {"url": redis.url}}}
        config = config_of(tmp_path, store)
        config["apis"]["batches"] |= {"running": 1, "lease_seconds": 60}
        processes += [Process(config, tmp_path, name) for name in ("one", "two")]
        one, two = processes
        with one.batches() as here, two.batches() as there:
            made = [
                here.create([line(f"r{each}", "line") for each in range(number)])
                for _ in range(several)
            ]
            # Made here, seen there.
            for each in made:
                check_complete(there, there.ended(each), number)
            slow = here.create([line("a", "line")] + [line(f"r{n}", "line") for n in range(900)])
            here.until(slow, lambda now: now.status == "in_progress")
            there.client.batches.cancel(slow.id)  # whichever of them runs it
            here.ended(slow)
            assert here.client.batches.retrieve(slow.id).status == "cancelled"
    finally:
        redis.kill()
    cancelled = one.lines_run + two.lines_run - number * several
    assert one.lines_run > number
    assert two.lines_run > number
    assert 0 <= cancelled < 901
