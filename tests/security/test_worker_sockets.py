"""Workers ask each other: what another process answers, or asks, and who it may be."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError
from gateway.engines.process import frames
from gateway.engines.process.frames import framed
from gateway.http.admin.all_workers import Question, all_activity, all_runs, cancel_run
from gateway.process import worker_sockets
from gateway.process.worker_sockets import WorkerSockets

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="workers need Unix sockets"),
]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def services() -> Any:
    return SimpleNamespace(
        runs=set(), run_history=None, queue_history=None, workers=None,
        usage=SimpleNamespace(last_used={}), slots=SimpleNamespace(slots={}),
        config=SimpleNamespace(server=SimpleNamespace(workers=2)),
    )  # fmt: skip


@asynccontextmanager
async def worker(folder: Path, serve: Serve) -> AsyncIterator[Any]:
    """A worker's services beside another process that is answered by `serve`."""
    mine = services()

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answered, str(folder / "1.w"))
    async with server, WorkerSockets(folder, mine):
        yield mine


async def everything(mine: Any) -> None:
    """All questions are answered without the other worker."""
    assert (await all_runs(mine)).answered == 1
    assert (await all_activity(mine)).running == {}
    assert await cancel_run(mine, "run_x_1") is None


ANSWERS = {
    "nothing": b"",
    "half a head": b"\0\0",
    "half a frame": b"\0\0\0\x09abc",
    "an empty frame": framed(b""),
    "garbage": framed(b"\xc1\xff" * 50),
    "another form": framed(msgspec.msgpack.encode({"object": "gateway.runs", "workers": "many"})),
    "nested without end": framed(b"\x91" * 100_000),
    "too large": b"\xff\xff\xff\xff" + b"a" * 1000,
}


@pytest.mark.parametrize("what", ANSWERS)
async def test_answers_that_are_none_are_left_out(tmp_path: Path, what: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWERS[what])
        await writer.drain()

    async with worker(tmp_path, serve) as mine:
        await everything(mine)


async def test_a_worker_that_never_answers_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_sockets, "ANSWER_SECONDS", 0.05)
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()

    async with worker(tmp_path, serve) as mine:
        await everything(mine)
        assert (await all_runs(mine)).silent == (await all_activity(mine)).silent == [1]
        done.set()


async def test_an_answer_byte_by_byte_does_not_extend_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_sockets, "ANSWER_SECONDS", 0.05)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\x10\0\0")
        while not writer.is_closing():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.001)

    async with worker(tmp_path, serve) as mine:
        await everything(mine)


async def test_sockets_of_dead_workers_and_links_are_passed_over(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    kept = tmp_path / "kept"
    kept.write_text("mine")
    folder = tmp_path / "workers"
    folder.mkdir()
    (folder / "2.w").symlink_to(kept)
    (folder / "3.w").symlink_to(folder / "nowhere")
    (folder / "4.w").mkdir()
    (folder / "5.w").write_text("a file")
    async with worker(folder, serve) as mine:
        await everything(mine)
        # The one at 1.w ends without an answer; nobody listens at the others.
        assert 1 in (await all_runs(mine)).silent
    assert kept.read_text() == "mine"


async def test_the_own_socket_is_not_made_through_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    folder = tmp_path / "workers"
    folder.mkdir()
    sockets = WorkerSockets(folder, services())
    sockets._own.symlink_to(kept)
    async with sockets:
        assert sockets._own.is_socket()
        assert not sockets._own.is_symlink()
    assert kept.read_text() == "mine"
    assert not sockets._own.exists()


async def asked(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(data)
        writer.write_eof()
        return await reader.read()
    except OSError:  # closed before everything was read
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"\0",
        framed(b""),
        framed(b"\xc1" * 100),
        framed(b"\x91" * 4000),
        framed(msgspec.msgpack.encode({"what": "stop"})),
        b"\xff\xff\xff\xff",
        framed(b"a" * 5000),
    ],
)
async def test_questions_that_are_none_are_not_answered(tmp_path: Path, question: bytes) -> None:
    mine = services()
    async with WorkerSockets(tmp_path, mine) as sockets:
        assert await asked(sockets._own, question) == b""
        good = framed(msgspec.msgpack.encode(Question(what="runs")))
        assert await asked(sockets._own, good)  # it still answers


async def test_processes_of_other_users_are_not_answered_and_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.read())

    async with worker(tmp_path, serve) as mine:
        monkeypatch.setattr(frames.os, "geteuid", lambda: -1)
        await everything(mine)
        good = framed(msgspec.msgpack.encode(Question(what="runs")))
        assert await asked(mine.workers._own, good) == b""
    assert set(told) <= {b""}


async def test_a_folder_whose_name_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with pytest.raises(ConfigurationError, match="TMPDIR"):
        async with WorkerSockets(folder, services()):
            pass


async def test_an_id_of_any_length_asks_nobody(tmp_path: Path) -> None:
    """Another worker reads no such question, and the log said that it does not answer."""
    asked_by: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_by.append(reader)

    async with worker(tmp_path, serve) as mine:
        assert await cancel_run(mine, "x" * 10_000) is None
        assert not asked_by
        assert await cancel_run(mine, "run_x_1") is None
        assert asked_by
