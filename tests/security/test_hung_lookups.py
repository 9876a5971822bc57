"""Names whose lookup never ends: hosts of a request's URLs, whose name servers its sender may run."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.base.net import names
from gateway.base.net.guard import resolve
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Principal
from tests.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The hosts whose lookup hangs, until the test ends."""
    asked: list[str] = []
    over = threading.Event()
    known = socket.getaddrinfo

    def ask(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "localhost":
            return known(host, *args, **kwargs)
        asked.append(host)
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "No answer.")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    yield asked
    over.set()
    wait_until(lambda: not any(each.name == "lookup" for each in threading.enumerate()))


async def test_an_owner_who_fills_them_is_refused_and_nobody_else(hung: list[str]) -> None:
    """Servers that a request names, whose name servers are silent: as many as it likes."""
    with within(RequestContext("req_1", principal=Principal(name="alice"))):
        waiting = [asyncio.create_task(resolve(f"{n}.example", 80)) for n in range(500)]
        await wait_until_async(lambda: sum(map(asyncio.Task.done, waiting)) == 500 - len(hung))
        assert len(hung) == names.LOOKUPS_OF_EACH
    with within(RequestContext("req_1", principal=Principal(name="bob"))):
        assert await resolve("localhost", 80)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_they_hold_up_no_other_name_and_no_other_work(hung: list[str]) -> None:
    waiting = [asyncio.create_task(resolve(f"{n}.example", 80)) for n in range(names.MAX_LOOKUPS)]
    await wait_until_async(lambda: len(hung) == len(waiting))
    with pytest.raises(OSError, match="too many names"):
        await resolve("one.more.example", 80)
    # Addresses are no names. The loop's own lookups, and whatever else runs in its threads, are not held up.
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
    assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    assert await asyncio.to_thread(lambda: 1) == 1
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_gives_up_is_not_told_later(hung: list[str]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await resolve("never.example", 80)
