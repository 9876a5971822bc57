"""Which hosts a list of patterns means, however they are written."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Sequence

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.net.guard import (
    AddressRefused,
    HostGuard,
    ascii_host,
    check_host_patterns,
    is_private,
    refusal,
    resolve,
)
from gateway.base.net.transports import GuardedTransport
from gateway.config.hosts import is_loopback


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


KINDS = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "reserved",
    "10.0.0.0": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "reserved",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.0.1": "link-local",
    "172.16.0.0": "private",
    "172.31.255.255": "private",
    "192.0.0.9": "reserved",
    "192.0.2.1": "reserved",
    "192.88.99.1": "reserved",
    "192.168.0.1": "private",
    "198.18.0.1": "private",
    "198.51.100.1": "reserved",
    "203.0.113.1": "reserved",
    "224.0.0.1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "100::1": "reserved",
    "2001:2::1": "reserved",
    "2001:20::1": "reserved",
    "2001:db8::1": "reserved",
    "3fff::1": "reserved",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fdff::1": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "private",
    "ff02::1": "multicast",
}
"""Addresses that are not public, from IANA's registries."""
PUBLIC = [
    "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "172.15.255.255",
    "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "2000::1", "2001:200::1", "2606:4700:4700::1111", "2a00::1", "3ffe:ffff::1",
]  # fmt: skip


def embedding(address: str) -> dict[str, str]:
    """IPv6 addresses that stand for one of IPv4."""
    high, low = struct.unpack("!HH", socket.inet_aton(address))
    a, b, c, d = socket.inet_aton(address)
    return {
        "mapped": f"::ffff:{address}",
        "compatible": f"::{address}",
        "translated": f"::ffff:0:{high:x}:{low:x}",
        "NAT64": f"64:ff9b::{high:x}:{low:x}",
        "local NAT64, 96 bits": f"64:ff9b:1:c000::{high:x}:{low:x}",
        "local NAT64, 64 bits": f"64:ff9b:1:c000:{a:x}:{b:02x}{c:02x}:{d:02x}00:0",
        "local NAT64, 56 bits": f"64:ff9b:1:c0{a:02x}:{b:x}:{c:02x}{d:02x}::",
        "local NAT64, 48 bits": f"64:ff9b:1:{high:x}:{c:x}:{d:02x}00::",
        "6to4": f"2002:{high:x}:{low:x}::1",
        "Teredo, server": f"2001:0:{high:x}:{low:x}::fefe:fefe",
        "Teredo, client": f"2001:0:101:101::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",
    }


@pytest.mark.parametrize("address", KINDS)
def test_addresses_that_are_not_public_have_a_category_on_every_python(address: str) -> None:
    kind = KINDS[address]
    assert refusal(address, allow_private=False) == kind
    assert refusal(address, allow_private=True) == (None if kind in ("loopback", "private") else kind)  # fmt: skip
    assert is_private(address) == (kind in ("loopback", "private"))


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal(address, allow_private=False) is None
    assert not is_private(address)


@given(st.sampled_from([each for each in KINDS if "." in each and each[0] != "0"]))
def test_an_address_that_embeds_one_that_is_not_public_is_refused_like_it(address: str) -> None:
    for how, written in embedding(address).items():
        if KINDS[address] != "reserved" or "bits" not in how:
            assert refusal(written, allow_private=False) == KINDS[address], how


@given(st.sampled_from([each for each in PUBLIC if "." in each]))
def test_an_address_that_embeds_a_public_one_is_allowed(address: str) -> None:
    for how, written in embedding(address).items():
        assert refusal(written, allow_private=False) is None, how


@given(st.ip_addresses())
def test_what_this_python_knows_as_not_public_is_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address.is_global and not str(address).startswith(("2002:", "64:ff9b:", "2001:0:")):
        assert refusal(str(address), allow_private=False) is not None


def test_a_mapped_address_is_as_private_as_the_one_that_it_maps() -> None:
    assert is_private("::ffff:10.0.0.1")
    assert is_private("::ffff:127.0.0.1")
    assert not is_private("::ffff:1.1.1.1")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:10.0.0.1")
