"""Which hosts a list of patterns means, however they are written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2
import pytest

from gateway.net.guard import (
    AddressRefused,
    HostGuard,
    ascii_host,
    check_host_patterns,
    resolve,
)
from gateway.net.http import GuardedTransport


@pytest.mark.parametrize(
    ("written", "compared"),
    [
        ("Example.COM.", "example.com"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("example。com", "example.com"),
        ("faß.de", "xn--fa-hia.de"),
        ("127.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("::ffff:7f00:1", "127.0.0.1"),
        ("FD00:0::1", "fd00::1"),
        ("☃.net", ""),
        ("", ""),
    ],
)
def test_a_host_is_compared_in_one_form(written: str, compared: str) -> None:
    assert ascii_host(written) == compared


@pytest.mark.parametrize("host", ["bücher.example", "xn--bcher-kva.example", "BÜCHER.example."])
@pytest.mark.parametrize("pattern", ["bücher.example", "xn--bcher-kva.example", "Bücher.example:80"])  # fmt: skip
def test_a_pattern_means_both_writings_of_a_name(pattern: str, host: str) -> None:
    assert HostGuard([pattern]).allows_host(host, 80)
    assert not HostGuard(["*"], deny_hosts=[pattern]).allows_host(host, 80)


@pytest.mark.parametrize("host", ["www.bücher.example", "www.xn--bcher-kva.example"])
@pytest.mark.parametrize("pattern", ["*.bücher.example", "*.xn--bcher-kva.example:80"])
def test_so_does_a_pattern_of_the_names_below(pattern: str, host: str) -> None:
    assert HostGuard([pattern]).allows_host(host, 80)
    assert not HostGuard([pattern]).allows_host(host.removeprefix("www."), 80)
    assert not HostGuard(["*"], deny_hosts=[pattern]).allows_host(host, 80)


def test_what_cannot_be_a_host_is_not_allowed() -> None:
    assert not HostGuard(["*"]).allows_host("☃.net", 80)
    assert not HostGuard(["☃.net"]).allows_host("example.com", 80)
    assert not HostGuard(["*"]).allows_host("", 80)


@pytest.mark.parametrize(
    "pattern",
    ["☃.net", "*.☃.net", "a..b", "*.", "", "http://a.example", "a.example/x", "a b", "a*b.example", "*.*", "☃.net:80",
     "a" * 64 + ".example"],
)  # fmt: skip
def test_a_pattern_that_matches_nothing_is_a_mistake(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"hosts: .* is not a host"):
        check_host_patterns(["a.example", pattern], "hosts")


def test_all_others_are_none() -> None:
    hosts = [
        "*",
        "*:80",
        "a",
        "a_b.example.",
        "*.a.example:80",
        "bücher.example",
        "127.1",
        "::1",
        "[::1]:80",
        "0x7f.1",
    ]
    check_host_patterns(hosts, "hosts")


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_a_denied_address_is_denied_under_every_name(address: str) -> None:
    async def found(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.2", address]

    def guard(denied: str) -> HostGuard:
        return HostGuard(
            ["*"], deny_hosts=[denied], allow_private=True, allow_plain=True, resolve=found
        )

    for denied in ("127.0.0.1", "127.1", "[::ffff:127.0.0.1]", "127.0.0.1:80"):
        with pytest.raises(AddressRefused, match="not on this server's list"):
            asyncio.run(guard(denied).addresses("http", "a.test", 80))
    for other in ("127.0.0.3", "127.0.0.1:81", "a.example"):
        assert asyncio.run(guard(other).addresses("http", "a.test", 80))


@pytest.mark.parametrize("host", ["a..example.com", ".example.com", "a" * 64 + ".com", "xn--a..b"])
def test_what_is_no_name_cannot_be_resolved(host: str) -> None:
    with pytest.raises(OSError, match="host's name"):
        asyncio.run(resolve(host, 80))


@pytest.mark.parametrize("written", ["faß.de", "xn--fa-hia.de", "XN--FA-HIA.DE"])
def test_the_host_that_is_resolved_is_the_one_that_is_asked_for(written: str) -> None:
    """`faß.de` is another host than `fass.de`, which the codec of Python makes of it."""
    resolved: list[str] = []
    asked: list[httpx2.Request] = []

    async def found(host: str, port: int) -> Sequence[str]:
        resolved.append(host)
        return ["93.184.216.34"]

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200)

    async def get() -> None:
        guard = HostGuard(["faß.de"], resolve=found)
        transport = GuardedTransport(httpx2.MockTransport(answer), guard)
        async with httpx2.AsyncClient(transport=transport) as client:
            await client.get(f"https://{written}/")

    asyncio.run(get())
    [request] = asked
    assert resolved == ["xn--fa-hia.de"]
    assert request.headers["host"] == request.extensions["sni_hostname"] == "xn--fa-hia.de"
