"""Real MCP servers, and gateways in front of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.free_ports import free_port
from gateway_testing.server import run_gateway

EXAMPLE = Path(__file__).parent / "mcp_example_server.py"
COMMAND = [sys.executable, str(EXAMPLE), "stdio"]


class HttpServer:
    """The example server as a process that listens."""

    def __init__(self, transport: str, *options: str) -> None:
        self.transport = transport
        self.port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        path = "sse" if self.transport == "sse" else "mcp"
        return f"http://127.0.0.1:{self.port}/{path}"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, str(EXAMPLE), self.transport, str(self.port), *self._options]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(600):
            assert self._process.poll() is None, "the MCP server did not start"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the MCP server does not listen")

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def http_server(transport: str, *options: str) -> Iterator[HttpServer]:
    """A server on a free port, until the context is left."""
    server = HttpServer(transport, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def streamable() -> Iterator[HttpServer]:
    """One server by streamable HTTP, for tests that do not hurt it."""
    with http_server("streamable-http") as server:
        yield server


@pytest.fixture(scope="session")
def sse() -> Iterator[HttpServer]:
    """One server by SSE, likewise."""
    with http_server("sse") as server:
        yield server


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """A piece of a scenario."""
    return {"call": {"name": name, "arguments": arguments}}


SCENARIO: list[dict[str, Any]] = [
    {"when": "please add", "pieces": [call("add", a=2, b=3)]},
    {"when": "add and think", "pieces": [{"text": "Both."}, call("add", a=2, b=3), call("count")]},
    {"when": "The sum is 5", "pieces": [{"text": "It is five."}]},
    {"when": "count for me", "pieces": [call("count")]},
    {"when": "of process", "pieces": [{"text": "Counted."}]},
    {"when": "fail please", "pieces": [call("broken")]},
    {"when": "be big", "pieces": [call("big")]},
    {"when": "hang please", "pieces": [call("hang")]},
    {"when": "die please", "pieces": [call("die")]},
    {"when": "learn please", "pieces": [call("learn", name="trick")]},
    {"when": "Learned.", "pieces": [{"text": "I know more."}]},
    {"when": "do the trick", "pieces": [call("trick")]},
    {"when": "I am trick", "pieces": [{"text": "Done."}]},
    {"when": "no such thing", "pieces": [call("nothing")]},
    {"when": "wrong arguments", "pieces": [call("add", a="many")]},
    {"when": "The tool failed", "pieces": [{"text": "It failed."}]},
    {"when": "Error executing tool", "pieces": [{"text": "It said no."}]},
    {"when": "did not answer within", "pieces": [{"text": "Too slow."}]},
    {"when": "did not approve", "pieces": [{"text": "As you wish."}]},
    {"when": "Cut off", "pieces": [{"text": "It was long."}]},
]


def configuration(folder: Path, **tables: Any) -> dict[str, Any]:
    """A gateway with a scripted model `m`; `tables` are those of `[tools.mcp]`, and `server`."""
    scenario = folder / "scenario.json"
    scenario.write_text(json.dumps(SCENARIO), encoding="utf-8")
    for server in tables.get("servers", {}).values():
        if server.get("command") == COMMAND:
            # On a busy machine its process takes long to start; a server that is late is left out.
            server.setdefault("connect_timeout", 300)
            server.setdefault("offer_timeout", 300)
    return {
        "server": tables.pop("server", {}),
        "models": {"m": {"engine": "scripted", "path": str(scenario)}},
        "tools": {"mcp": tables},
    }


@pytest.fixture
def mcp_gateway(gateway_server: Any, tmp_path: Path) -> Callable[..., Any]:
    """Start a gateway: `mcp_gateway(servers={...}, remote={...}, server={...})`."""
    return lambda **tables: gateway_server(configuration(tmp_path, **tables))


@pytest.fixture(scope="session")
def example_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A gateway with the example server as `ex`, for tests that do not hurt it."""
    folder = tmp_path_factory.mktemp("mcp")
    config = configuration(folder, servers={"ex": {"command": COMMAND}})
    with run_gateway(config, folder) as gateway:
        yield gateway


@pytest.fixture
def start_mcp_server() -> Iterator[Callable[..., HttpServer]]:
    """Start servers that a test may hurt: `start_mcp_server(transport)`."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(http_server(*arguments))
