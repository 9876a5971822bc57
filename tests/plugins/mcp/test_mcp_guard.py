"""Which addresses a request can make the gateway connect to."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import GatewayError
from gateway.base.net.guard import AddressRefused, refusal
from gateway.base.net.transports import GuardedTransport, LimitedTransport, TooLarge
from gateway_mcp.config import RemoteServersConfig
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.http import mcp_client

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("100.64.0.1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("2002:7f00:1::", "loopback"),
        ("2002:a00:1::", "private"),
        ("::127.0.0.1", "loopback"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str, kind: str) -> None:
    assert refusal(address, allow_private=False) is not None
    assert refusal(address, allow_private=True) == (
        None if kind in ("loopback", "private") else refusal(address, allow_private=False)
    )


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal(address, allow_private=False) is None


@given(st.ip_addresses(v=4))
def test_an_address_hidden_in_ipv6_is_judged_as_itself(address: Any) -> None:
    alone = refusal(str(address), allow_private=False)
    for hidden in (f"::ffff:{address}", str(ip_address((0x64FF9B << 96) | int(address)))):
        assert (refusal(hidden, allow_private=False) is None) == (alone is None)


def guard(hosts: Sequence[str], addresses: Any = (PUBLIC,), **fields: Any) -> RemoteGuard:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return list(addresses.pop(0) if isinstance(addresses, list) else addresses)

    return RemoteGuard(
        RemoteServersConfig(enabled=True, allow_hosts=list(hosts), **fields), resolve
    )


@pytest.mark.parametrize(
    ("patterns", "url", "allowed"),
    [
        (["mcp.example.com"], "https://mcp.example.com/mcp", True),
        (["mcp.example.com"], "https://MCP.example.com./mcp", True),
        (["mcp.example.com"], "https://example.com/mcp", False),
        (["mcp.example.com"], "https://mcp.example.com.evil.net/mcp", False),
        (["*.example.com"], "https://a.b.example.com/mcp", True),
        (["*.example.com"], "https://example.com/mcp", False),
        (["*.example.com"], "https://evilexample.com/mcp", False),
        (["example.com:8443"], "https://example.com:8443/mcp", True),
        (["example.com:8443"], "https://example.com/mcp", False),
        (["[2606:4700::1111]:443"], "https://[2606:4700::1111]/mcp", True),
        (["2606:4700::1111"], "https://[2606:4700::1111]/mcp", True),
        (["*"], "https://anything.net/mcp", True),
        ([], "https://anything.net/mcp", False),
        (["*"], "ftp://anything.net/mcp", False),
        (["*"], "https://user:secret@anything.net/mcp", False),
        (["*"], "https:///mcp", False),
        (["*"], "https://[bad/mcp", False),
        (["*"], "https://anything.net:99999/mcp", False),
    ],
)
def test_the_list_of_hosts_is_held_to(patterns: list[str], url: str, allowed: bool) -> None:
    if allowed:
        guard(patterns).check_url(url)
        return
    with pytest.raises(GatewayError) as refused:
        guard(patterns).check_url(url)
    assert refused.value.param == "server_url"
    assert "secret" not in refused.value.message


def test_one_refused_address_refuses_the_host() -> None:
    with pytest.raises(AddressRefused):
        asyncio.run(guard(["*"], (PUBLIC, "10.0.0.1")).addresses("https", "h", 443))


def test_only_private_addresses_are_reached_without_tls() -> None:
    with pytest.raises(AddressRefused, match="TLS"):
        asyncio.run(guard(["*"], allow_private=True).addresses("http", "h", 80))
    inside = guard(["*"], ("10.0.0.1",), allow_private=True)
    assert asyncio.run(inside.addresses("http", "h", 80)) == ["10.0.0.1"]


class Network(httpx2.AsyncBaseTransport):
    """Notes what is connected to, and answers with what it is given."""

    def __init__(self, *answers: httpx2.Response, dead: Sequence[str] = ()) -> None:
        self.requests: list[httpx2.Request] = []
        self._answers = list(answers)
        self._dead = dead

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.url.host in self._dead:
            raise httpx2.ConnectError("dead")
        return self._answers.pop(0) if self._answers else httpx2.Response(200, text="hello")


async def get(transport: httpx2.AsyncBaseTransport, **options: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=transport, **options) as client:
        return await client.get("https://mcp.example.com/mcp")


def test_the_connection_is_made_to_the_checked_address_under_the_hosts_name() -> None:
    network = Network()
    asyncio.run(get(GuardedTransport(network, guard(["*"]))))
    [request] = network.requests
    assert request.url.host == PUBLIC
    assert request.headers["host"] == "mcp.example.com"
    assert request.extensions["sni_hostname"] == "mcp.example.com"


def test_the_next_address_is_tried_where_one_is_dead() -> None:
    network = Network(dead=["2606:4700::1111"])
    answer = asyncio.run(get(GuardedTransport(network, guard(["*"], ("2606:4700::1111", PUBLIC)))))
    assert answer.text == "hello"
    assert [request.url.host for request in network.requests] == ["2606:4700::1111", PUBLIC]


def test_a_name_that_changes_its_meaning_is_refused_at_the_next_connection() -> None:
    """DNS rebinding: public when it is looked at, private when it is used."""
    network = Network()
    rebinding = guard(["*"], [(PUBLIC,), ("169.254.169.254",)])

    async def check_then_connect() -> None:
        await rebinding.check_addresses("https://mcp.example.com/mcp")
        await get(GuardedTransport(network, rebinding))

    with pytest.raises(httpx2.ConnectError, match="link-local"):
        asyncio.run(check_then_connect())
    assert not network.requests


def test_a_redirect_is_checked_as_a_request_of_its_own() -> None:
    away = httpx2.Response(307, headers={"location": "https://metadata.internal/latest"})
    network = Network(away)
    transport = GuardedTransport(network, guard(["mcp.example.com"]))
    with pytest.raises(httpx2.ConnectError, match="not on this server's list"):
        asyncio.run(get(transport, follow_redirects=True))
    assert len(network.requests) == 1


def test_a_body_beyond_the_limit_is_not_read_to_its_end() -> None:
    def answer(size: int) -> LimitedTransport:
        return LimitedTransport(Network(httpx2.Response(200, stream=_Bytes(b"x" * size))), 100)

    with pytest.raises(TooLarge):
        asyncio.run(get(answer(101)))
    assert len(asyncio.run(get(answer(100))).content) == 100


def test_only_who_reads_event_streams_takes_them_without_a_limit() -> None:
    def answer(**options: bool) -> LimitedTransport:
        headers = {"content-type": "text/event-stream"}
        response = httpx2.Response(200, headers=headers, stream=_Bytes(b"x" * 101))
        return LimitedTransport(Network(response), 100, **options)

    with pytest.raises(TooLarge):
        asyncio.run(get(answer()))
    assert len(asyncio.run(get(answer(event_streams=True))).content) == 101


def test_a_body_in_thousands_of_chunks_lets_other_tasks_run() -> None:
    class Chunks(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(10_000):  # as of one read from the network: nothing is awaited
                yield b"x"

    async def turns() -> int:
        count = 0

        async def others() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        network = Network(httpx2.Response(200, stream=Chunks()))
        answer = await get(GuardedTransport(network, guard(["*"])))
        task.cancel()
        assert answer.content == b"x" * 10_000
        return count

    assert asyncio.run(turns()) > 100


def test_a_compressed_body_is_refused() -> None:
    packed = httpx2.Response(
        200, headers={"content-encoding": "gzip"}, stream=_Bytes(gzip.compress(b"x" * 10_000))
    )
    with pytest.raises(httpx2.RemoteProtocolError):
        asyncio.run(get(LimitedTransport(Network(packed), 1000)))


class _Bytes(httpx2.AsyncByteStream):
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> Any:
        yield self._data


def test_the_client_follows_nothing_and_heeds_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")

    async def client_of() -> httpx2.AsyncClient:
        async with mcp_client(
            {}, connect_timeout=1, max_message_bytes=1, guard=guard(["*"])
        ) as client:
            return client

    client = asyncio.run(client_of())
    assert not client.follow_redirects
    assert not client.trust_env
