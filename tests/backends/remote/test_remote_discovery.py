"""Where replicas come from, and how they join and leave."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigurationError
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from gateway_remote.address import address_of
from gateway_remote.discovery import DnsReplicas, discovery
from gateway_remote.replica import endpoint, endpoint_at
from tests.waiting import wait_until_async

Start = Callable[..., Awaitable[list[Any]]]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://host:8000", "http://host:8000"),
        (" http://host:8000/ ", "http://host:8000"),
        ("http://host:8000/v1", "http://host:8000"),
        ("https://host/prefix/v1/", "https://host/prefix"),
    ],
)
def test_an_address_may_be_written_as_people_write_it(written: str, meant: str) -> None:
    assert endpoint(written).url == meant


@pytest.mark.parametrize(
    "written", ["host:8000", "ftp://host", "http://", "http://a:b", "http://u:p@h", "http://h?x=1"]
)
def test_what_is_no_address_is_refused_with_a_sentence(written: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\."):
        discovery(RemoteConfig(urls=[written]), None)


def test_without_any_source_the_sentence_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="set urls"):
        discovery(RemoteConfig(), "Qwen/Qwen3-8B")


def test_an_address_that_was_found_by_name_keeps_the_name_for_host_and_tls() -> None:
    named = endpoint("https://engines.default.svc:8443/base")
    address = address_of(endpoint_at(named, "10.1.2.3"))
    assert (address.host, address.port, address.tls) == ("10.1.2.3", 8443, True)
    assert address.header == "engines.default.svc:8443"
    assert address.name == "engines.default.svc"
    assert address.prefix == "/base"
    assert endpoint_at(named, "fd00::1").url == "https://[fd00::1]:8443/base"


def test_a_name_gives_one_replica_for_each_address() -> None:
    found = asyncio.run(DnsReplicas("http://localhost:8000").find())
    assert "http://127.0.0.1:8000" in {each.url for each in found}
    assert len(found) == len(set(found))


def test_what_a_source_said_last_holds_while_it_cannot_tell(tmp_path: Path) -> None:
    file = tmp_path / "replicas"
    file.write_text("http://a:1  # the first\n\nhttp://b:2\n")
    found = discovery(RemoteConfig(file=str(file), urls=["http://c:3"]), None)
    everything = {"http://a:1", "http://b:2", "http://c:3"}
    assert {each.url for each in asyncio.run(found.find())} == everything
    for broken in ("", "# nothing\n", "what is this\n"):
        file.write_text(broken)
        assert {each.url for each in asyncio.run(found.find())} == everything
        assert found.problems
    file.unlink()
    assert {each.url for each in asyncio.run(found.find())} == everything
    file.write_text("http://b:2\n")
    assert {each.url for each in asyncio.run(found.find())} == {"http://b:2", "http://c:3"}
    assert not found.problems


@pytest.mark.anyio
async def test_a_watched_file_lets_replicas_join_and_drain(
    stubs: Start, vocabulary: str, tmp_path: Path
) -> None:
    one, two = await stubs(2)
    one.go.clear()
    file = tmp_path / "replicas"
    file.write_text(one.url)
    config = RemoteConfig(file=str(file), tokenizer=vocabulary, discovery_interval=0.05)

    async def ask(engine: Any, number: int, tokens: int) -> int:
        asked = EngineRequest(
            request_id=f"r{number}",
            prompt=TokensPrompt(token_ids=[number]),
            sampling=Sampling(max_tokens=tokens),
        )
        return sum([len(output.token_ids) async for output in engine.generate(asked)])

    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        long = asyncio.create_task(ask(engine, 1, 40))
        await wait_until_async(lambda: one.active == 1)
        file.write_text(two.url)
        await wait_until_async(
            lambda: [row["status"] for row in engine.describe()] == ["draining", "up"]
        )
        async with asyncio.timeout(60):
            assert [await ask(engine, number, 2) for number in range(2, 12)] == [2] * 10
            assert len(two.completed) == 10
            one.go.set()
            assert await long == 40, "a draining replica ends what it runs"
        await wait_until_async(lambda: [row["replica"] for row in engine.describe()] == [two.url])


@pytest.mark.anyio
async def test_a_name_is_resolved_again_and_again_so_that_replicas_join_and_drain(
    stubs: Start, vocabulary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pods behind a headless service of Kubernetes: one name, one port, an address for each that is ready."""
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    pods = await stubs(3, hosts=hosts)
    ready = hosts[:2]
    resolve = socket.getaddrinfo

    def name_server(host: str, *args: Any, **kwargs: Any) -> Any:
        if host != "engines.models.svc":
            return resolve(host, *args, **kwargs)
        if not ready:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for each in ready for found in resolve(each, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", name_server)
    config = RemoteConfig(
        dns=f"http://engines.models.svc:{pods[0].port}",
        tokenizer=vocabulary,
        discovery_interval=0.05,
        choice="power_of_two",
    )

    async def rows(engine: Any, expected: set[str]) -> None:
        await wait_until_async(lambda: {row["replica"] for row in engine.describe()} == expected)

    async def ask(engine: Any) -> None:
        for number in range(30):
            asked = EngineRequest(
                request_id=f"r{number}",
                prompt=TokensPrompt(token_ids=[number]),
                sampling=Sampling(max_tokens=1),
            )
            assert [output async for output in engine.generate(asked)]

    async with open_remote(config, EngineContext(name="stub", path=None)) as engine:
        await ask(engine)
        assert [bool(pod.completed) for pod in pods] == [True, True, False]
        ready[:] = hosts[1:]
        await rows(engine, {pod.url for pod in pods[1:]})
        before = len(pods[0].completed)
        await ask(engine)
        assert pods[2].completed
        assert len(pods[0].completed) == before
        # Where no pod is ready, or the name server is away, the last that was known holds.
        ready.clear()
        await asyncio.sleep(0.2)
        await ask(engine)
        await rows(engine, {pod.url for pod in pods[1:]})


@pytest.mark.parametrize("url", ["http://host:99999", "http://[::1", "ftp://host", "http://u@host"])
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(url))):
        endpoint(url)
