"""What the system refuses for a moment is tried again: processes, connections, and processes that end just now."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import msgspec
import pytest

from gateway.base.errors import ConfigurationError, EngineUnavailable
from gateway.engines.process import link, tokenizer
from gateway.engines.process.connection import EngineConnection, OutputStream
from gateway.engines.process.frames import HEAD
from gateway.engines.process.link import EngineLink
from gateway.engines.process.messages import Description, Opened
from gateway.engines.process.starting import (
    EngineProcesses,
    EngineSpec,
    HostSettings,
    NotStarted,
    StartLater,
)
from gateway.engines.process.tokenizer import ProcessTokenizer
from gateway.plugins.protocols import EngineOutput, ModelInfo
from gateway.process.engine_control import EngineControl, SupervisorStarter
from gateway.process.engine_host import EngineHost
from tests.gateway.engines.process.conftest import spec_of

pytestmark = pytest.mark.anyio
DESCRIPTION = Description(
    info=ModelInfo(name="m", engine="scripted", max_model_len=8), capabilities=[]
)


def too_many(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_a_process_that_the_system_does_not_start_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = EngineProcesses(HostSettings())
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", too_many)
        with pytest.raises(StartLater):
            processes.start_now(spec_of("scripted"))
    assert processes._folder is not None
    assert not list(processes._folder.path.glob("*.sock"))
    await processes.close()


async def test_a_supervisor_that_cannot_be_asked_is_asked_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    starter = SupervisorStarter(str(tmp_path / "none.sock"))
    with pytest.raises(NotStarted, match="supervisor"):
        await starter.start(spec_of("scripted"))
    monkeypatch.setattr(asyncio, "open_unix_connection", too_many)
    with pytest.raises(StartLater):
        await starter.start(spec_of("scripted"))


class OnceRefused:
    """A socket whose first connection cannot be accepted."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.refused = False

    def accept(self) -> Any:
        if not self.refused:
            self.refused = True
            too_many()
        return self._listening.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listening, name)


async def test_the_supervisor_answers_after_a_connection_that_it_could_not_accept() -> None:
    processes = SimpleNamespace(start_now=lambda spec: f"path of {spec.name}")
    control = EngineControl(cast("EngineProcesses", processes))
    refusing = OnceRefused(control._listening)
    control._listening = cast("socket.socket", refusing)
    with control:
        starter = SupervisorStarter(control.path)
        async with asyncio.timeout(60):
            assert await starter.start(spec_of("scripted")) == "path of m"
    assert refusing.refused


async def test_an_engine_is_reached_after_a_connection_that_it_could_not_accept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_nothing(stack: object) -> Any:
        raise ConfigurationError("There is no model.")

    loop = asyncio.get_running_loop()
    accept, refused = loop.sock_accept, asyncio.Event()

    async def accept_later(listening: socket.socket) -> Any:
        if not refused.is_set():
            refused.set()
            too_many()
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", accept_later)
    # A short path, as those of sockets must be.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = f"{folder}/s"
        listening.bind(path)
        listening.listen()
        serving = asyncio.ensure_future(EngineHost("m", open_nothing).serve(listening))
        async with asyncio.timeout(60):
            connection = await EngineConnection.open(path, lambda _: None)
            opened = await connection.call("open", None, Opened)
            assert opened.error == "There is no model."
            connection.close()
            await serving
    assert refused.is_set()


class Ending:
    """Connections to processes that end while they open the engine, `left` times."""

    def __init__(self, left: int, failed: bool) -> None:
        self.left = left
        self._failed = failed
        self._ended = False

    async def start(self, spec: EngineSpec) -> str:
        if self._ended and self._failed:
            raise StartLater(0.0)
        return "path"

    async def open(self, path: str, lost: object) -> Any:
        return self

    async def call(self, *_: object) -> Opened:
        if self.left:
            self.left -= 1
            self._ended = True
            raise EngineUnavailable("The engine's process has ended.")
        return Opened(description=DESCRIPTION)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("left", "failed", "opens"), [(1, False, True), (2, False, False), (1, True, False)]
)
async def test_a_process_that_its_last_user_leaves_is_opened_again_once(
    monkeypatch: pytest.MonkeyPatch, left: int, failed: bool, opens: bool
) -> None:
    ending = Ending(left, failed)
    monkeypatch.setattr(link, "EngineConnection", ending)
    made = EngineLink(spec_of("scripted"), ending, None, AsyncMock())
    if opens:
        assert await made.open() == DESCRIPTION
    else:
        with pytest.raises(ConfigurationError, match="has ended while it opened the model"):
            await made.open()


async def test_an_event_loop_waits_for_a_stalled_tokenizer_for_a_short_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tokenizer._LOOP_SECONDS < 5
    monkeypatch.setattr(tokenizer, "_LOOP_SECONDS", 0.05)
    monkeypatch.setattr(tokenizer, "_SECONDS", 30.0)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = f"{folder}/s"
        listening.bind(path)
        listening.listen()
        stalled = ProcessTokenizer(lambda: path)
        with pytest.raises(EngineUnavailable, match="does not answer"):
            stalled.encode("Hi")
        in_thread = asyncio.ensure_future(asyncio.to_thread(stalled.encode, "Hi"))
        # The first connection is that of the event loop's call.
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            first, _ = await loop.sock_accept(listening)
            connection, _ = await loop.sock_accept(listening)
            with first, connection:
                while len(await loop.sock_recv(connection, 100)) <= HEAD:
                    pass
                answer = msgspec.msgpack.encode((True, [7]))
                await asyncio.sleep(0.1)  # longer than an event loop may wait
                await loop.sock_sendall(connection, len(answer).to_bytes(HEAD, "big") + answer)
                assert await in_thread == [7]
        stalled.close()


async def test_a_stalled_tokenizer_holds_up_an_event_loop_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each request waited for it, one after the other, and everything else of the worker with them."""
    monkeypatch.setattr(tokenizer, "_LOOP_SECONDS", 0.05)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = f"{folder}/s"
        listening.bind(path)
        listening.listen()
        listening.setblocking(False)
        loop = asyncio.get_running_loop()
        stalled = ProcessTokenizer(lambda: path)
        with pytest.raises(EngineUnavailable, match="timed out"):
            stalled.encode("Hi")
        monkeypatch.setattr(tokenizer, "_LOOP_SECONDS", 30.0)
        for _ in range(3):
            with pytest.raises(EngineUnavailable, match="does not answer"):
                stalled.encode("Hi")
        connection, _ = await loop.sock_accept(listening)
        with pytest.raises(BlockingIOError):
            listening.accept()
        answer = msgspec.msgpack.encode((True, [7]))
        frame = len(answer).to_bytes(HEAD, "big") + answer
        await loop.sock_sendall(connection, frame)
        connection.close()

        def serve() -> None:
            listening.setblocking(True)
            with listening.accept()[0] as again:
                while len(again.recv(100)) <= HEAD:
                    pass
                again.sendall(frame)

        serving = loop.run_in_executor(None, serve)
        assert stalled.encode("Hi") == [7]
        await serving
        stalled.close()


async def test_counts_are_not_lost_where_outputs_are_joined() -> None:
    stream = OutputStream(1)
    stream.put(EngineOutput(text="a"))
    await stream.take()
    stream.put(EngineOutput(text="b"))
    stream.put(EngineOutput(text="c", cached_tokens=3))
    stream.put(EngineOutput(text="d", reasoning_tokens=2, finish_reason="stop"))
    taken = [await stream.take() for _ in range(3)]
    assert [each.text for each in taken] == ["b", "c", "d"]
    assert (taken[1].cached_tokens, taken[2].reasoning_tokens) == (3, 2)
