"""Whose address is logged: the client's, also behind proxies that are trusted, and never what a client only says."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ServerConfig, TrustedProxies
from gateway.http.client_address import ClientAddress

TRUSTED = TrustedProxies(["10.0.0.0/8", "::1", "unix"])


def found(client: str | None, *headers: str, trusted: TrustedProxies = TRUSTED) -> str:
    scope = {
        "client": None if client is None else (client, 1),
        "headers": [(b"x-forwarded-for", each.encode("latin-1", "replace")) for each in headers],
    }
    return ClientAddress(trusted).of(scope)


@pytest.mark.parametrize(
    ("client", "headers", "address"),
    [
        ("203.0.113.7", (), "203.0.113.7"),
        ("203.0.113.7", ("1.1.1.1",), "203.0.113.7"),
        ("10.1.2.3", (), "10.1.2.3"),
        ("10.1.2.3", ("203.0.113.7",), "203.0.113.7"),
        ("10.1.2.3", ("1.1.1.1, 203.0.113.7",), "203.0.113.7"),
        ("10.1.2.3", ("1.1.1.1", "203.0.113.7, 10.9.9.9"), "203.0.113.7"),
        ("10.1.2.3", ("10.4.4.4",), "10.4.4.4"),
        ("10.1.2.3", ("203.0.113.7, unknown",), "10.1.2.3"),
        ("10.1.2.3", ("unknown, 203.0.113.7",), "203.0.113.7"),
        ("10.1.2.3", ("203.0.113.7:4711",), "203.0.113.7"),
        ("10.1.2.3", ("[2001:db8::1]:4711",), "2001:db8::1"),
        ("10.1.2.3", ("2001:DB8::1",), "2001:db8::1"),
        ("10.1.2.3", ("fe80::1%a key=root",), "fe80::1"),
        ("10.1.2.3", ("",), "10.1.2.3"),
        ("::ffff:10.1.2.3", ("::ffff:203.0.113.7",), "203.0.113.7"),
        ("::1", ("203.0.113.7",), "203.0.113.7"),
        (None, ("203.0.113.7",), "203.0.113.7"),
        (None, ("unix",), "unix"),
        (None, (), "unix"),
    ],
)
def test_the_last_address_that_no_trusted_proxy_has(
    client: str | None, headers: tuple[str, ...], address: str
) -> None:
    assert found(client, *headers) == address


def test_a_unix_socket_is_trusted_only_if_it_is_named() -> None:
    assert found(None, "203.0.113.7", trusted=TrustedProxies(["10.0.0.0/8"])) == "unix"


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


@given(client=addresses, headers=st.lists(st.text(max_size=60), max_size=4))
def test_whatever_is_sent_the_log_has_an_address(client: str, headers: list[str]) -> None:
    for each in (client, "10.0.0.1"):
        ip_address(found(each, *headers))


@given(
    said=st.text(max_size=40).map(lambda text: text.replace(",", "")),
    real=st.ip_addresses(v=4).filter(lambda each: not TRUSTED.allow(str(each))).map(str),
    proxies=st.lists(st.sampled_from(["10.0.0.1", "10.255.0.9", "::1"]), min_size=1, max_size=20),
)
def test_what_the_client_says_changes_nothing(said: str, real: str, proxies: list[str]) -> None:
    *inner, last = proxies
    assert found(last, ", ".join([said, real, *inner])) == real


def test_a_long_header_is_not_read_to_its_end() -> None:
    assert found("10.0.0.1", ",".join(["1.1.1.1"] + ["10.0.0.2"] * 100_000)) == "10.0.0.2"


@pytest.mark.parametrize("entry", ["proxy.example", "10.0.0.0/33", "", "*", "10.0.0.1/8"])
def test_what_is_no_address_is_a_mistake(entry: str) -> None:
    with pytest.raises(ValueError, match="trusted_proxies"):
        ServerConfig(trusted_proxies=[entry])
