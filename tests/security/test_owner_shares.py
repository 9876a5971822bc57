"""What one owner stores costs no other owner anything."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from redis.asyncio import Redis

from gateway.access.access import hash_key
from gateway.plugins.protocols import ResponseStore, StoredResponse
from gateway.wire.content import InputText
from gateway.wire.items import Message
from gateway.wire.response import Conversation
from gateway_memory import MemoryConfig, open_memory
from gateway_postgres import PostgresConfig, open_postgres
from gateway_redis import RedisConfig, open_redis
from gateway_sqlite import SqliteConfig, open_sqlite
from gateway_testing.server import run_gateway
from gateway_testing.store_completion_contract import completion
from gateway_testing.store_records import message, record
from tests.waiting import wait_until, wait_until_async

pytestmark = pytest.mark.anyio
Open: TypeAlias = Callable[..., Awaitable[ResponseStore]]
TEXT = "0123456789abcdef" * 64
"""A kilobyte."""


@pytest.fixture(
    params=["memory", "sqlite", "redis", pytest.param("postgres", marks=pytest.mark.slow)]
)
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Open an empty store with some bounds."""
    async with AsyncExitStack() as stack:

        async def open_(**bounds: Any) -> ResponseStore:
            if request.param == "memory":
                return await stack.enter_async_context(open_memory(MemoryConfig(**bounds)))
            if request.param == "sqlite":
                config = SqliteConfig(path=str(tmp_path / "store.sqlite"), **bounds)
                return await stack.enter_async_context(open_sqlite(config))
            if request.param == "postgres":
                url = request.getfixturevalue("postgres_process").url
                there = PostgresConfig(url=url, schema=f"shares_{uuid.uuid4().hex[:12]}", **bounds)
                return await stack.enter_async_context(open_postgres(there))
            url = request.getfixturevalue("redis").url
            async with Redis.from_url(url) as client:
                await client.flushall()
            return await stack.enter_async_context(open_redis(RedisConfig(url=url, **bounds)))

        yield open_


def said(text: str, item_id: str) -> Message:
    return Message(id=item_id, role="user", content=[InputText(text=text)])


class Things:
    """One kind of what is stored."""

    def __init__(self, store: ResponseStore) -> None:
        self.store = store
        self._number = 0

    async def add(self, owner: str, size: int = 0) -> str:
        raise NotImplementedError

    async def has(self, owner: str, thing: str) -> bool:
        raise NotImplementedError

    async def kept(self, owner: str, things: list[str]) -> list[str]:
        return [each for each in things if await self.has(owner, each)]


class Responses(Things):
    async def add(self, owner: str, size: int = 0) -> str:
        made = record(owner=owner, output=[message("assistant", "x" * size)])
        await self.store.put(made)
        return made.id

    async def has(self, owner: str, thing: str) -> bool:
        return await self.store.get(thing, owner=owner) is not None


class Completions(Things):
    async def add(self, owner: str, size: int = 0) -> str:
        made = completion(owner=owner, metadata={"k": "x" * size})
        await self.store.put_completion(made)
        return made.id

    async def has(self, owner: str, thing: str) -> bool:
        return await self.store.get_completion(thing, owner=owner) is not None


class Conversations(Things):
    async def add(self, owner: str, size: int = 0) -> str:
        self._number += 1
        made = Conversation(id=f"conv_{owner}_{self._number}", created_at=1)
        await self.store.put_conversation(made, owner=owner)
        if size:
            await self.store.append_items(made.id, [said("x" * size, "msg_1")], owner=owner)
        return made.id

    async def has(self, owner: str, thing: str) -> bool:
        return await self.store.get_conversation(thing, owner=owner) is not None


KINDS: dict[str, type[Things]] = {
    "responses": Responses,
    "completions": Completions,
    "conversations": Conversations,
}


@pytest.mark.parametrize("kind", KINDS)
async def test_who_stores_many_things_loses_their_own(open_store: Open, kind: str) -> None:
    things = KINDS[kind](await open_store(**{f"max_{kind}": 20}))
    modest = [await things.add("modest") for _ in range(10)]
    greedy = [await things.add("greedy") for _ in range(200)]

    async def bounded() -> bool:
        return len(await things.kept("greedy", greedy)) <= 10

    await wait_until_async(bounded)
    assert await things.kept("modest", modest) == modest
    assert await things.kept("greedy", greedy) == greedy[-10:]


@pytest.mark.parametrize("kind", KINDS)
async def test_who_stores_large_things_loses_their_own(open_store: Open, kind: str) -> None:
    """Whatever kind of thing the others have stored."""
    store = await open_store(max_bytes=200_000)
    everything = [each(store) for each in KINDS.values()]
    modest = [(things, await things.add("modest", 5000)) for things in everything * 4]
    greedy = KINDS[kind](store)
    added = [await greedy.add("greedy", 5000) for _ in range(200)]

    async def bounded() -> bool:
        kept = await greedy.kept("greedy", added)
        # Looked up one by one: what goes meanwhile leaves a gap.
        return len(kept) < 40 and kept == added[-len(kept) :]

    await wait_until_async(bounded)
    for things, each in modest:
        assert await things.has("modest", each)
    kept = await greedy.kept("greedy", added)
    assert len(kept) > 5, "nobody loses more than has to go"


async def test_one_conversation_that_grows_pushes_nobody_out(open_store: Open) -> None:
    store = await open_store(max_bytes=100_000)
    responses = Responses(store)
    modest = [await responses.add("modest", 1000) for _ in range(10)]
    conversation = await Conversations(store).add("greedy")
    for number in range(200):
        item = said(TEXT, f"msg_{number}")
        if not await store.append_items(conversation, [item], owner="greedy"):
            break

    async def gone() -> bool:
        return await store.get_conversation(conversation, owner="greedy") is None

    await wait_until_async(gone)
    assert await responses.kept("modest", modest) == modest


async def test_a_chain_whose_ancestors_are_gone_counts_for_its_owner(open_store: Open) -> None:
    """A short last response keeps all items before it: what an evicted one has left is not free."""
    store = await open_store(max_bytes=200_000)
    responses = Responses(store)
    modest = [await responses.add("modest", 1000) for _ in range(20)]
    chain: list[StoredResponse] = []
    for _ in range(60):
        previous = chain[-1].id if chain else None
        made = record(
            owner="greedy", output=[message("assistant", TEXT * 8)], previous_response_id=previous
        )
        await store.put(made)
        chain.append(made)
        await asyncio.sleep(0.01)

    async def broken() -> bool:
        kept = [each for each in chain if await store.get(each.id, owner="greedy")]
        histories = [await store.history(each.id, owner="greedy") for each in kept]
        return sum(len(each or ()) for each in histories[-1:]) < 60

    await wait_until_async(broken)
    assert await responses.kept("modest", modest) == modest


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_what_is_running_is_evicted_by_nobody(open_store: Open, status: Any) -> None:
    """Also where its owner has most; and then the others lose nothing for it."""
    store = await open_store(max_responses=10, max_bytes=100_000)
    responses = Responses(store)
    modest = [await responses.add("modest", 1000) for _ in range(3)]
    running = [
        record(owner="greedy", status=status, input_=[said(TEXT * 4, f"msg_{n}")])
        for n in range(40)
    ]
    for each in running:
        await store.put(each)
    greedy = [await responses.add("greedy", 1000) for _ in range(20)]

    async def bounded() -> bool:
        return len(await responses.kept("greedy", greedy)) <= 10

    await wait_until_async(bounded)
    assert len(await responses.kept("greedy", [each.id for each in running])) == 40
    assert await responses.kept("modest", modest) == modest


async def test_what_is_deleted_counts_no_more(open_store: Open) -> None:
    store = await open_store(max_responses=10, max_bytes=100_000)
    responses = Responses(store)
    for _ in range(10):
        some = [await responses.add("ada", 5000) for _ in range(5)]
        for each in some:
            assert await store.delete(each, owner="ada")
    last = [await responses.add("ada", 5000) for _ in range(10)]
    await asyncio.sleep(0.3)
    assert await responses.kept("ada", last) == last


RULES = [{"when": "", "pieces": [{"text": "Hello. "}], "repeat": 20}]
KEYS = [{"name": name, "sha256": hash_key(f"{name}-key")} for name in ("ada", "bob")]


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_a_conversation_that_is_full_is_refused_with_the_bound(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("redis").url
    config = {
        "server": {
            "api_keys": KEYS,
            "store": store,
            "max_conversation_items": 6,
            "max_conversation_bytes": 20_000,
        },
        "stores": {"redis": {"url": url}} if store == "redis" else {},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
    }
    item = {"role": "user", "content": "x"}
    headers = {"authorization": "Bearer ada-key"}
    with (
        run_gateway(config, tmp_path) as gateway,
        httpx.Client(base_url=gateway.base_url, headers=headers, timeout=60) as client,
    ):

        def refused(path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = client.post(path, json=body)
            assert answer.status_code == 400, answer.text
            error: dict[str, Any] = answer.json()["error"]
            assert error["code"] == "conversation_too_large"
            assert "6 items and 20000 bytes" in error["message"]
            return error

        refused("/conversations", {"items": [item] * 7})
        refused("/conversations", {"items": [{**item, "content": "x" * 20_000}]})
        conversation = client.post("/conversations", json={"items": [item] * 3}).json()["id"]
        items = f"/conversations/{conversation}/items"
        refused(items, {"items": [item] * 4})
        assert client.post(items, json={"items": [item]}).status_code == 200
        turn = {"model": "m", "input": "hi", "conversation": conversation}
        assert client.post("/responses", json=turn).json()["status"] == "completed"
        assert refused("/responses", turn)["param"] == "conversation"
        kept = client.get(items).json()["data"]
        assert len(kept) == 6
        for each in kept[:4]:
            client.delete(f"{items}/{each['id']}")
        assert client.post("/responses", json=turn).json()["status"] == "completed"


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("store", ["memory", "redis"])
def test_a_response_that_its_conversation_cannot_keep_has_failed(
    store: str, background: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Completed means kept: nothing is left out in silence, and all see the same end."""
    url = request.getfixturevalue("redis").url
    config = {
        "server": {"store": store, "max_conversation_bytes": 600},
        "stores": {"redis": {"url": url}} if store == "redis" else {},
        "models": {
            "m": {"engine": "scripted", "scripted": {"rules": [{**RULES[0], "repeat": 200}]}}
        },
    }
    with (
        run_gateway(config, tmp_path) as gateway,
        httpx.Client(base_url=gateway.base_url, timeout=60) as client,
    ):
        conversation = client.post("/conversations", json={}).json()["id"]
        turn = {"model": "m", "input": "hi", "conversation": conversation, "background": background}
        made = client.post("/responses", json=turn).json()
        if not background:
            assert made["error"]["code"] == "conversation_too_large"
        else:
            found = made
            while found["status"] in ("queued", "in_progress", "completed"):
                found = client.get(f"/responses/{made['id']}").json()
            assert found["status"] == "failed"
            assert "600 bytes" in found["error"]["message"]
        assert client.get(f"/conversations/{conversation}/items").json()["data"] == []


@pytest.mark.slow
def test_what_one_owner_has_waiting_in_the_background_is_bounded(tmp_path: Path) -> None:
    """No store forgets what is running: so there may not be any amount of it."""
    slow = [{"when": "", "delay_ms": 50, "repeat": 2000, "pieces": [{"text": "slow words "}]}]
    config = {
        "server": {"api_keys": KEYS, "max_background_bytes": 50_000},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": slow}}},
    }
    body = {"model": "m", "input": "x" * 20_000, "background": True}
    with run_gateway(config, tmp_path) as gateway, ExitStack() as stack:
        ada, bob = (
            stack.enter_context(
                httpx.Client(
                    base_url=gateway.base_url, headers={"authorization": f"Bearer {name}-key"}
                )
            )
            for name in ("ada", "bob")
        )
        made = [ada.post("/responses", json=body) for _ in range(10)]
        assert [answer.status_code for answer in made] == [200] * 2 + [429] * 8
        error = made[-1].json()["error"]
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
        assert bob.post("/responses", json=body).status_code == 200
        assert ada.post(f"/responses/{made[0].json()['id']}/cancel").status_code == 200
        again = ada.post("/responses", json=body)
        assert again.status_code == 200
        for answer in (made[1], again):
            assert ada.post(f"/responses/{answer.json()['id']}/cancel").status_code == 200


def searching(tmp_path: Path, **file_search: Any) -> Any:
    return run_gateway(
        {
            "server": {"api_keys": KEYS},
            "models": {"m": {"engine": "scripted"}},
            "tools": {"file_search": file_search},
        },
        tmp_path,
    )


class Files:
    """One owner's use of /v1/files and /v1/vector_stores."""

    def __init__(self, url: str, name: str) -> None:
        headers = {"authorization": f"Bearer {name}-key"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=60)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def upload(self, text: str) -> str:
        sent = {"file": ("a.txt", text.encode())}
        made: str = self.http.post("/files", files=sent, data={"purpose": "user_data"}).json()["id"]
        return made

    def store(self, *file_ids: str) -> str:
        made: str = self.http.post("/vector_stores", json={"file_ids": file_ids}).json()["id"]
        return made

    def counts(self, store: str) -> dict[str, int]:
        found: dict[str, int] = self.http.get(f"/vector_stores/{store}").json()["file_counts"]
        return found

    def read(self, store: str) -> dict[str, int]:
        """Wait until all files of a vector store are read."""
        wait_until(lambda: not self.counts(store)["in_progress"], "the files are read")
        return self.counts(store)


@pytest.mark.slow
def test_the_text_in_the_vector_stores_of_one_owner_is_bounded(tmp_path: Path) -> None:
    """One file in a thousand vector stores is a thousand times its text."""
    with (
        searching(tmp_path, max_index_bytes=50_000) as gateway,
        Files(gateway.base_url, "ada") as ada,
        Files(gateway.base_url, "bob") as bob,
    ):
        file = ada.upload("some words\n" * 900)
        stores = [ada.store(file) for _ in range(20)]
        counts = [ada.read(store) for store in stores]
        held = sum(each["completed"] for each in counts)
        assert 2 <= held <= 5
        assert sum(each["failed"] for each in counts) == 20 - held
        failed = stores[[each["failed"] for each in counts].index(1)]
        error = ada.http.get(f"/vector_stores/{failed}/files/{file}").json()["last_error"]
        assert "this server's limit of 50000 bytes" in error["message"]
        others = bob.store(bob.upload("some words\n" * 900))
        assert bob.read(others)["completed"] == 1
        for store in stores:
            assert ada.http.delete(f"/vector_stores/{store}").status_code == 200
        assert ada.read(ada.store(file))["completed"] == 1


def test_who_adds_many_files_delays_nobody_elses(tmp_path: Path) -> None:
    with (
        searching(tmp_path, indexing=1) as gateway,
        Files(gateway.base_url, "ada") as ada,
        Files(gateway.base_url, "bob") as bob,
    ):
        file = bob.upload("a word")
        many = ada.store(*(ada.upload(f"some words {number}\n" * 500) for number in range(150)))
        one = bob.store(file)
        assert bob.read(one)["completed"] == 1
        assert ada.counts(many)["in_progress"] > 20
