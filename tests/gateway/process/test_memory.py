"""Memory that was freed is given back to the system, and a client that leaves leaves nothing behind."""

from __future__ import annotations

import gc
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.http.connections.http_protocol import LimitedHttpProtocol
from gateway.process.memory import GROWTH, MemoryTrimmer, memory_trimmer
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway
from tests.waiting import wait_until

WORDS = "many words in a large answer " * 2000
RULES = [{"when": "warm", "pieces": [{"text": "Hello"}]}, {"pieces": [{"text": WORDS}]}]


class Process:
    """A process with `used` bytes in use and `free` bytes that were freed."""

    def __init__(self, used: int) -> None:
        self.used = used
        self.free = 0
        self.trimmed = 0

    def resident(self) -> int:
        return self.used + self.free

    def trim(self) -> None:
        self.trimmed += 1
        self.free = 0


async def checks(trimmer: MemoryTrimmer, count: int, *, idle: bool = True) -> None:
    """Checks, each after the trimming before it."""
    for _ in range(count):
        trimmer.check(idle=idle)
        if trimmer._trimming is not None:
            await trimmer._trimming


@pytest.mark.anyio
async def test_what_was_freed_is_given_back_after_a_growth() -> None:
    process = Process(100 << 20)
    trimmer = MemoryTrimmer(process.resident, process.trim)
    await checks(trimmer, 10)
    assert process.trimmed == 0
    process.free = GROWTH + 1
    await checks(trimmer, 10)
    assert (process.trimmed, process.free) == (1, 0)


@pytest.mark.anyio
async def test_what_stays_in_use_is_tried_more_and_more_rarely() -> None:
    process = Process(100 << 20)
    trimmer = MemoryTrimmer(process.resident, process.trim)
    process.used += 10 * GROWTH
    await checks(trimmer, 10_000)
    assert 10 < process.trimmed < 50


@pytest.mark.anyio
async def test_while_requests_run_it_is_done_once_a_minute_at_most() -> None:
    process = Process(100 << 20)
    trimmer = MemoryTrimmer(process.resident, process.trim)
    process.free = 2 * GROWTH
    await checks(trimmer, 50, idle=False)
    assert process.trimmed == 0
    await checks(trimmer, 20, idle=False)
    assert process.trimmed == 1


@pytest.mark.anyio
async def test_what_is_freed_after_the_busiest_moment_is_given_back_too() -> None:
    process = Process(100 << 20)
    trimmer = MemoryTrimmer(process.resident, process.trim)
    process.used += 10 * GROWTH
    await checks(trimmer, 2)
    assert process.trimmed == 1
    process.used, process.free = 100 << 20, 10 * GROWTH
    await checks(trimmer, 20)
    assert process.free == 0
    process.free = GROWTH + 1
    await checks(trimmer, 1)
    assert process.free == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.anyio
async def test_this_process_has_one_where_the_c_library_can() -> None:
    trimmer = memory_trimmer()
    if trimmer is None:
        pytest.skip("the C library has no malloc_trim")
    trimmer._least = 0  # it has grown
    await checks(trimmer, 1)
    assert trimmer._trimming is not None


def leave_unread(gateway: RunningGateway, count: int) -> None:
    """Ask for large answers, and reset the connections when the answers begin."""
    address = ("127.0.0.1", int(gateway.base_url.rsplit(":", 1)[1].partition("/")[0]))
    body = json.dumps({"model": "m", "input": "x", "store": False}).encode()
    head = (
        "POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    connections = []
    for _ in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address)
        connection.sendall(head.encode() + body)
        connections.append(connection)
    for connection in connections:
        connection.settimeout(60)
        assert connection.recv(12) == b"HTTP/1.1 200"
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def alive(*kinds: type) -> int:
    gc.collect()
    return sum(isinstance(each, kinds) for each in gc.get_objects())


@pytest.mark.slow
def test_a_connection_that_is_reset_leaves_no_object_behind(
    gateway_server: StartGateway, tmp_path: Path
) -> None:
    (tmp_path / "said.json").write_text(json.dumps(RULES))
    config: dict[str, Any] = {
        "server": {"keep_alive": 3600.0},
        "models": {"m": {"engine": "scripted", "path": "said.json", "max_running": 50}},
    }
    gateway = gateway_server(config, folder=tmp_path)
    warm = {"model": "m", "input": "warm", "store": False}
    assert httpx.post(f"{gateway.base_url}/responses", json=warm, timeout=60).status_code == 200
    before = alive(LimitedHttpProtocol)
    leave_unread(gateway, 10)
    wait_until(lambda: not gateway.services.runs)
    wait_until(lambda: alive(LimitedHttpProtocol) <= before)
