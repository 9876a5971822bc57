"""Notifications between the processes that use one file. Each `Peers` stands for a process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest

from gateway_sqlite.peers import Peers
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio


class Process:
    """A socket in the folder, and what it was notified of."""

    def __init__(self, folder: Path) -> None:
        before = set(folder.iterdir())
        self.news: list[Collection[str]] = []
        self.peers = Peers(folder, self.news.append)
        [self.path] = set(folder.iterdir()) - before

    def close(self) -> None:
        self.peers.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "sockets"
    made.mkdir()
    return made


def fill(path: Path) -> None:
    """Send to a socket until its queue is full."""
    with (
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)) as other,
        pytest.raises(BlockingIOError),
    ):
        while True:
            other.sendto(b"filler", str(path))


async def test_a_process_whose_greeting_met_a_full_queue_is_notified(folder: Path) -> None:
    """Without it, the process would wait for ever for the events of the other one."""
    with closing(Process(folder)) as old:
        fill(old.path)
        with closing(Process(folder)) as new:
            await wait_until_async(lambda: () in old.news, "the greeting is sent again")
            old.peers.announce(["resp_1"])
            await wait_until_async(lambda: {"resp_1"} in new.news)


async def test_what_was_stored_before_the_greeting_arrived_is_not_missed(folder: Path) -> None:
    with closing(Process(folder)) as old, closing(Process(folder)) as new:
        old.peers.announce(["resp_1"])  # it does not know the new process yet
        await wait_until_async(lambda: () in new.news, "any name may have news")


async def test_processes_are_found_once(folder: Path) -> None:
    """The answer to a greeting is not answered, and the next notifications come alone."""
    with closing(Process(folder)) as old, closing(Process(folder)) as new:
        await wait_until_async(lambda: new.news)
        for number in range(3):
            old.peers.announce([f"resp_{number}"])
            new.peers.announce([f"resp_{number}"])
            await wait_until_async(lambda: {f"resp_{number}"} in old.news)  # noqa: B023
            await wait_until_async(lambda: {f"resp_{number}"} in new.news)  # noqa: B023
        assert old.news == [{"resp_0"}, {"resp_1"}, {"resp_2"}]
        assert new.news == [(), *old.news]


async def test_only_the_socket_of_a_process_that_has_ended_is_removed(folder: Path) -> None:
    """A process that cannot be notified for another reason is notified later."""
    with (
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as live,
        closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)) as later,
    ):
        live.bind(str(folder / "live"))  # a datagram to it fails, but not as to one that has ended
        (folder / "dead").touch()
        with closing(Process(folder)) as process:
            process.peers.announce(["resp_1"])
            assert not (folder / "dead").exists()
            assert (folder / "live").exists()
            later.bind(str(folder.parent / "later"))
            (folder.parent / "later").replace(folder / "live")
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(60):
                assert await loop.sock_recv(later, 100) == b""
