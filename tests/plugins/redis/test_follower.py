"""Logs are followed on after any failure of a read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from gateway_redis import follower
from gateway_redis.follower import StreamFollower
from gateway_redis.keys import Keys


class FailingOnce:
    """A server whose first read fails. It has one log of one event, which ends it."""

    def __init__(self, failure: Exception, key: str) -> None:
        self._failure: Exception | None = failure
        self._key = key.encode()

    async def wait_for_entries(self, streams: Sequence[Any], *, seconds: float) -> Any:
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure
        return [(self._key, [(b"1-0", [b"e", b"event", b"end", b"1"])])]

    async def run(self, script: object, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """The length of each log, and whether it has ended."""
        return [0, 0] * len(keys)


@pytest.mark.anyio
@pytest.mark.parametrize("failure", [ValueError("a defect"), KeyError("x")])
async def test_a_defect_does_not_leave_readers_waiting(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower, "_PAUSE", 0.0)
    keys = Keys("litegate")
    server: Any = FailingOnce(failure, keys.log("resp_1")[1])
    logs = StreamFollower(server, keys, None)
    with caplog.at_level(logging.ERROR):
        cursor = logs.join("resp_1", 0)
        cursor.caught_up_to(0)
        async with asyncio.timeout(60):
            while not cursor.over:
                cursor.waiting = asyncio.get_running_loop().create_future()
                await cursor.waiting
    assert cursor.take() == [b"event"]
    assert "could not be followed" in caplog.text
    await logs.close()
