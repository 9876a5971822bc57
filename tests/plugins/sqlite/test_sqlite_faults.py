"""What was acknowledged is there, however the process or the disk ends."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path

import pytest

from gateway_sqlite import SqliteConfig, open_sqlite

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("storing_process.py")


async def check(path: Path, said: list[str]) -> int:
    """Everything that was acknowledged is stored. Returns how much that is."""
    put: set[str] = set()
    finished: set[str] = set()
    events: dict[str, int] = defaultdict(int)
    items: list[tuple[str, str]] = []
    for line in said:
        match line.split():
            case ["put", response_id]:
                put.add(response_id)
            case ["events", response_id, number]:
                events[response_id] = int(number)
            case ["finished", response_id]:
                finished.add(response_id)
            case ["item", conversation, item]:
                items.append((conversation, item))
    async with open_sqlite(SqliteConfig(path=str(path), check="full")) as store:
        for response_id in put:
            found = await store.get(response_id)
            assert found is not None
            if response_id in finished:
                assert found.response.status == "completed"
            stored = await store.count_events(response_id)
            assert stored >= events[response_id]
            async with aclosing(store.read_events(response_id)) as log:
                if stored:
                    assert list(await anext(log)) == [b"%d" % at for at in range(stored)]
            history = await store.history(response_id)
            assert history is not None
        for conversation, item in items:
            assert await store.get_item(conversation, item) is not None
    return len(put) + len(items)


async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Again and again, with the same file."""
    path = tmp_path / "store.sqlite"
    said: list[str] = []
    chance = random.Random(16)
    for _ in range(12):
        said += await asyncio.to_thread(killed, path, chance)
        assert await check(path, said) > 0
    assert len(said) > 500


def killed(path: Path, chance: random.Random) -> list[str]:
    """What a process said until it was killed."""
    said: list[str] = []
    command = [sys.executable, PROGRAM, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 300)):
            said.append(process.stdout.readline())
        time.sleep(chance.random() * 0.02)
        process.kill()
        # The last line may be cut off.
        return [*said, *(line for line in process.stdout if line.endswith("\n"))]


async def test_a_disk_that_is_full_loses_nothing_and_is_used_again_when_it_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store.sqlite"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, PROGRAM, path, str(3 << 20)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    said = done.stdout.splitlines()
    assert said.count("full") >= 1
    assert said[-3:-2] == ["unhealthy"]
    assert said[-1] == "recovered"
    assert await check(path, said) > 10
