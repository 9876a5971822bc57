"""Searches of files end in time, take turns by owner, and keep nothing else waiting."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.access import hash_key
from gateway.base.errors import StoreUnavailable
from gateway.base.shares import ShareExceeded
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Principal
from gateway.storage.files.database import FilesDatabase, ReadTooLong
from gateway_file_search.words import phrases, words_of_each
from gateway_testing.server import run_gateway
from tests.waiting import wait_until

pytestmark = pytest.mark.anyio
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[FilesDatabase]:
    made = FilesDatabase(
        tmp_path / "some.sqlite3", ["CREATE TABLE t (a)"], name="It", setting="path"
    )
    yield made
    made.close()


@contextmanager
def working_for(owner: str) -> Iterator[None]:
    with within(RequestContext("req_1", principal=Principal(name=owner))):
        yield


def endless_statement(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    connection.execute(ENDLESS).fetchone()


def endless_code(connection: sqlite3.Connection, check: Callable[[], None]) -> None:
    while True:
        check()


@pytest.mark.parametrize("work", [endless_statement, endless_code])
async def test_a_long_read_ends_with_its_time(database: FilesDatabase, work: Any) -> None:
    for _ in range(5):
        with pytest.raises(ReadTooLong):
            await database.read_long(work, seconds=0.01)
    assert await database.read_long(lambda c, _: c.execute("SELECT 1").fetchone()[0], seconds=60)


async def test_a_mistake_is_no_lack_of_time(database: FilesDatabase) -> None:
    with pytest.raises(StoreUnavailable, match="no such table"):
        await database.read_long(lambda c, _: c.execute("SELECT * FROM u"), seconds=60)


@pytest.mark.parametrize("work", [endless_statement, endless_code])
async def test_a_long_read_that_nobody_waits_for_ends(database: FilesDatabase, work: Any) -> None:
    tasks = [asyncio.create_task(database.read_long(work, seconds=600)) for _ in range(8)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert await database.read_long(lambda c, _: 1, seconds=60)


async def test_nobody_and_nothing_else_waits_for_the_long_reads_of_one(
    database: FilesDatabase,
) -> None:
    go = threading.Event()
    begun = threading.Semaphore(0)

    def slow(connection: sqlite3.Connection, check: Callable[[], None]) -> int:
        begun.release()
        go.wait()
        return 1

    try:
        with working_for("alice"):
            hers = [asyncio.create_task(database.read_long(slow, seconds=60)) for _ in range(16)]
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asyncio.to_thread(lambda: [begun.acquire() for _ in range(3)])
            with working_for("bob"):
                assert await database.read_long(lambda c, _: 2, seconds=60) == 2
            with working_for("alice"):
                assert await database.read(lambda c: 3) == 3
                await database.write(lambda c: c.execute("INSERT INTO t VALUES (1)"))
        assert not any(task.done() for task in hers)
        with working_for("alice"):
            more = [asyncio.create_task(database.read_long(slow, seconds=60)) for _ in range(100)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        refused = [task for task in more if task.done()]
        assert len(refused) == 100 - (64 + 3 - 16)
        assert all(isinstance(task.exception(), ShareExceeded) for task in refused)
        with working_for("bob"):
            assert await database.read_long(lambda c, _: 4, seconds=60) == 4
    finally:
        go.set()
    await asyncio.gather(*hers, *more, return_exceptions=True)


WORDS = st.text(max_size=4096)


@given(queries=st.lists(WORDS, min_size=1, max_size=16))
def test_the_terms_of_a_search_are_bounded(queries: list[str]) -> None:
    most = words_of_each(len(queries))
    assert 12 <= most <= 48
    assert sum(len(phrases(query, most)) for query in queries) <= 192


KEYS = [{"name": name, "sha256": hash_key(f"{name}-key")} for name in ("alice", "bob")]


def test_a_search_that_takes_too_long_is_refused_with_what_to_do(tmp_path: Path) -> None:
    call = {"call": {"name": "file_search", "arguments": {"queries": ["words"]}}}
    rules = [
        {"when": "look it up", "pieces": [call]},
        {"when": "took longer than", "pieces": [{"text": "Too slow."}]},
    ]
    model = {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}
    config = {
        "server": {"api_keys": KEYS},
        "models": {"m": model},
        "tools": {"file_search": {"search_time": 1e-9}},
    }
    headers = {"authorization": "Bearer alice-key"}
    with (
        run_gateway(config, tmp_path) as gateway,
        httpx.Client(base_url=gateway.base_url, headers=headers, timeout=60) as client,
    ):
        sent = {"file": ("a.txt", b"some words")}
        file = client.post("/files", files=sent, data={"purpose": "user_data"}).json()["id"]
        store = client.post("/vector_stores", json={"file_ids": [file]}).json()["id"]
        wait_until(lambda: client.get(f"/vector_stores/{store}").json()["file_counts"]["completed"])
        answer = client.post(f"/vector_stores/{store}/search", json={"query": "words"})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["type"], error["param"], error["code"]) == (
            "invalid_request_error",
            "query",
            "search_timeout",
        )
        assert "fewer or shorter queries" in error["message"]
        tools = [{"type": "file_search", "vector_store_ids": [store]}]
        body = {"model": "m", "input": "look it up", "tools": tools}
        answered = client.post("/responses", json=body).json()
        assert answered["output"][-1]["content"][0]["text"] == "Too slow."
        # A wrong request is still told what is wrong.
        missing = client.post("/vector_stores/vs_1/search", json={"query": "words"})
        assert missing.status_code == 404
