"""The socket of an engine's process: who can reach it, and what somebody who does can do."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.config import ModelConfig, PluginsConfig
from gateway.engines.process.client import ProcessEngine, engine_in_process
from gateway.engines.process.frames import ENGINE, MAX_FRAME, TOKENIZER, framed
from gateway.engines.process.starting import EngineProcesses, EngineSpec, HostSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are in /proc"),
]
SECRET = "not-for-anybody"


@pytest.fixture
async def processes(anyio_backend: str) -> AsyncIterator[EngineProcesses]:
    made = EngineProcesses(HostSettings(end_seconds=2.0, secrets=[SECRET]))
    yield made
    await made.close()


@pytest.fixture
async def engine(processes: EngineProcesses) -> AsyncIterator[ProcessEngine]:
    config = ModelConfig(engine="scripted", parser="qwen3")
    spec = EngineSpec(name="m", config=config, plugins=PluginsConfig(), compile_seconds=10.0)
    async with engine_in_process(spec, processes) as made:
        yield made


def process_of(processes: EngineProcesses) -> int:
    [one] = [each.running for each in processes._processes.values()]
    assert one is not None
    return one.pid


async def test_only_this_user_can_reach_it(engine: ProcessEngine) -> None:
    path = engine._link.path
    for each, mode in ((path, 0o600), (os.path.dirname(path), 0o700)):
        found = os.stat(each)
        assert stat.S_IMODE(found.st_mode) == mode
        assert found.st_uid == os.geteuid()


async def test_it_holds_no_descriptor_but_its_own(
    processes: EngineProcesses, engine: ProcessEngine, tmp_path: Path
) -> None:
    with socket.socket() as listening:
        file = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
        os.set_inheritable(file, True)
        os.set_inheritable(listening.fileno(), True)
        config = ModelConfig(engine="scripted", parser="qwen3", max_model_len=100)
        spec = EngineSpec(name="n", config=config, plugins=PluginsConfig(), compile_seconds=10.0)
        async with engine_in_process(spec, processes):
            for each in processes._processes.values():
                assert each.running is not None
                folder = Path(f"/proc/{each.running.pid}/fd")
                links = [os.readlink(folder / name) for name in os.listdir(folder)]
                own = os.readlink(f"/proc/self/fd/{listening.fileno()}")
                assert own not in links
                assert not [link for link in links if "secret" in link]
        os.close(file)


async def test_secrets_are_in_neither_its_command_nor_its_environment(
    processes: EngineProcesses, engine: ProcessEngine
) -> None:
    folder = Path(f"/proc/{process_of(processes)}")
    assert SECRET.encode() not in (folder / "cmdline").read_bytes()
    assert SECRET.encode() not in (folder / "environ").read_bytes()


@pytest.mark.parametrize(
    "sent",
    [
        b"?",
        ENGINE + (MAX_FRAME + 1).to_bytes(4, "big"),
        ENGINE + framed(b"\xc1 no message"),
        ENGINE + framed(b"\x93\x09\x01\xc0"),
        TOKENIZER + (MAX_FRAME + 1).to_bytes(4, "big"),
        TOKENIZER + framed(b"\xc1"),
    ],
)
async def test_what_is_no_message_ends_its_own_connection_only(
    engine: ProcessEngine, sent: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(engine._link.path)
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    await engine.health()
    assert engine.tokenizer is not None
    assert engine.tokenizer.decode(engine.tokenizer.encode("still here")) == "still here"
