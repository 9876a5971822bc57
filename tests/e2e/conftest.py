"""A running server: the `gateway` command as a process of its own, reached over a socket."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway_testing.free_ports import free_port
from gateway_testing.postgres_process import PostgresProcess
from gateway_testing.redis_process import RedisProcess
from tests.waiting import wait_until

SCENARIO = Path(__file__).parent / "scenario.json"
CONFIG = """
[server]
port = {port}
max_body_bytes = 2000000
grace_period = {grace}
{server}

[models.scripted]
engine = "scripted"
path = "{scenario}"
aliases = ["gpt-alias"]
max_model_len = 20000

[models.small]
engine = "scripted"
path = "{scenario}"
max_running = 1
max_waiting = 1
max_model_len = 200
"""


class Server:
    """A gateway process."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path, file: Path) -> None:
        self.process = process
        self.file = file
        """Its configuration."""
        self.url = f"http://127.0.0.1:{port}"
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Send `sig` and wait for the exit code."""
        self.process.send_signal(sig)
        return self.process.wait(timeout=120)


Start = Callable[..., Server]


def wait_until_ready(server: Server) -> None:
    def ended_or_ready() -> bool:
        if server.process.poll() is not None:
            return True
        try:
            return httpx.get(f"{server.url}/ready").status_code == 200
        except httpx.TransportError:
            return False

    wait_until(ended_or_ready, "the server is ready", seconds=240)  # an engine may take its time
    assert server.process.poll() is None, f"the server did not start:\n{server.log}"


def running_requests(http: httpx.Client, model: str = "scripted") -> float:
    """How many requests run at a model, as the server's metrics have it."""
    lines = http.get("/metrics").text.splitlines()
    found = next(x for x in lines if x.startswith(f'gateway_running_requests{{model="{model}"'))
    return float(found.split()[-1])


class LiveStream:
    """The bytes of a streamed answer, read in a thread. Made once the first text has come."""

    def __init__(self, url: str, body: Mapping[str, Any]) -> None:
        self.got: list[bytes] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._read, args=(url, body), daemon=True)
        self._thread.start()
        wait_until(lambda: self._error or self._has_begun, f"text from {url}")
        if self._error:
            raise self._error

    @property
    def _has_begun(self) -> bool:
        whole = b"".join(self.got)
        return b"output_text.delta" in whole or b'"content":' in whole

    def _read(self, url: str, body: Mapping[str, Any]) -> None:
        try:
            with httpx.stream("POST", url, json=body, timeout=60) as answer:
                for part in answer.iter_bytes():
                    self.got.append(part)
        except Exception as error:
            self._error = error

    def whole(self) -> bytes:
        """All of it, once it has ended."""
        self._thread.join(60)
        assert not self._thread.is_alive()
        return b"".join(self.got)


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start a gateway with the scripted models, or with `config` instead; all are stopped at the end."""
    started: list[Server] = []

    def start(
        config: str = CONFIG,
        *,
        server: str = "",
        grace: float = 1,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Server:
        """`environment` takes the place of the configuration file."""
        folder = tmp_path_factory.mktemp("server")
        port = free_port()
        file = folder / "gateway.toml"
        file.write_text(
            config.replace("{port}", str(port))
            .replace("{scenario}", str(SCENARIO))
            .replace("{server}", server)
            .replace("{grace}", str(grace))
        )
        log = folder / "log"
        own = {k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")}
        if environment is None:
            arguments = ("--config", str(file), *arguments)
        else:
            file.unlink()
            own |= {**environment, "GATEWAY_SERVER__PORT": str(port)}
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "serve", *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                env=own,
                cwd=folder,
            )
        made = Server(process, port, log, file)
        started.append(made)
        wait_until_ready(made)
        return made

    yield start
    for server_ in started:
        if server_.process.poll() is None:
            server_.process.kill()
            server_.process.wait()


class SharedStore:
    """A store that gateways of several processes share, with its server if it has one."""

    def __init__(self, name: str, process: Any, address: str) -> None:
        self.name = name
        self.process = process
        """A `RedisProcess` or `PostgresProcess`; None for a file."""
        self._address = address

    def table(self, **settings: float) -> str:
        """`[stores.<name>]`. The settings are those of a store with a server."""
        if self.process is None:
            return f'[stores.{self.name}]\npath = "{self._address}"\n'
        lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
        return f'[stores.{self.name}]\nurl = "{self._address}"\n{lines}'

    def leases(self) -> int:
        """How many leases there are."""
        match self.process:
            case RedisProcess():
                return int((self.process.ask("ZCARD litegate:{leases}") or b":-1")[1:])
            case PostgresProcess():
                return int(self.process.ask("SELECT count(*) FROM litegate.leases"))
            case _:
                with closing(sqlite3.connect(self._address)) as file:
                    return int(file.execute("SELECT count(*) FROM leases").fetchone()[0])

    def suspend(self, process: subprocess.Popen[Any]) -> None:
        """Stop a process that uses the store, at a moment at which it does not write: it would hold the lock of SQLite's file."""
        process.send_signal(signal.SIGSTOP)
        while self.process is None and _is_locked(process, Path(self._address)):
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
            process.send_signal(signal.SIGSTOP)


def _is_locked(process: subprocess.Popen[Any], file: Path) -> bool:
    """Whether `process`, once all its threads have stopped, holds the lock of an SQLite file."""
    threads = Path(f"/proc/{process.pid}/task")
    wait_until(
        lambda: all(
            each.read_text().rpartition(")")[2].split()[0] == "T" for each in threads.glob("*/stat")
        ),
        "all threads have stopped",
    )
    with closing(sqlite3.connect(file, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False


@contextmanager
def shared_store(name: str, folder: Path) -> Iterator[SharedStore]:
    match name:
        case "redis":
            redis = RedisProcess(folder, "--appendonly", "yes", "--appendfsync", "always")
            yield SharedStore(name, redis, redis.url)
            redis.kill()
        case "postgres":
            try:
                postgres = PostgresProcess()
            except FileNotFoundError as error:
                if "LITEGATE_NEED_POSTGRES" in os.environ:
                    raise
                pytest.skip(str(error))
            yield SharedStore(name, postgres, postgres.url)
            postgres.close()
        case _:
            yield SharedStore(name, None, str(folder / "store.sqlite"))


@pytest.fixture(params=["redis", "postgres", "sqlite"])
def any_shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedStore]:
    """Each store that processes share."""
    with shared_store(request.param, tmp_path) as store:
        yield store


@pytest.fixture(params=["redis", "postgres"])
def served_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedStore]:
    """Each store with a server, which has all that it had when it comes back."""
    with shared_store(request.param, tmp_path) as store:
        yield store


@pytest.fixture(scope="session")
def server(start_server: Start) -> Server:
    """One server for all tests that do not hurt it."""
    return start_server()


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with server.client() as client:
        yield client


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.http() as client:
        yield client
