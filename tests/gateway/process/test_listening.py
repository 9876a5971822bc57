"""Where a server listens, and what it says if it cannot."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.base.errors import ConfigurationError
from gateway.config import Config, ServerConfig
from gateway.process.listening import bind, bind_all, bound_all, listen


def test_of_two_servers_that_start_at_once_the_later_one_is_told_that_the_port_is_taken() -> None:
    config = Config(server=ServerConfig(port=0), models={})
    with bind(config) as first:
        port = first.getsockname()[1]
        with bind(replace(config, server=ServerConfig(port=port))) as second:
            listen(first, 16)
            with pytest.raises(ConfigurationError, match=rf"port {port}.*--port"):
                listen(second, 16)


def test_a_port_that_is_taken_is_said_before_models_are_opened() -> None:
    with bind(Config(server=ServerConfig(port=0), models={})) as first:
        listen(first, 16)
        port = first.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"port {port}"):
            bind(Config(server=ServerConfig(port=port), models={}))


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def naming(monkeypatch: pytest.MonkeyPatch, addresses: list[str]) -> None:
    """Let `localhost` have these addresses."""
    resolve = socket.getaddrinfo

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "localhost":
            return resolve(host, *args, **kwargs)
        return [found for each in addresses for found in resolve(each, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("addresses", [["::1", "127.0.0.1"], ["127.0.0.1", "::1", "127.0.0.1"]])
def test_a_name_with_addresses_of_both_families_is_listened_on_at_both(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    naming(monkeypatch, addresses)
    config = Config(server=ServerConfig(host="localhost", port=0), models={})
    with bound_all(config) as listening:
        for each in listening:
            listen(each, 16)
        names = [each.getsockname()[:2] for each in listening]
        assert [host for host, _ in names] == ["127.0.0.1", "::1"]
        assert len({port for _, port in names}) == 1
        for host, port in names:
            socket.create_connection((host, port), timeout=10).close()


def test_an_address_of_a_family_that_is_not_used_here_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naming(monkeypatch, ["2001:db8::1", "127.0.0.1"])
    config = Config(server=ServerConfig(host="localhost", port=0), models={})
    with bound_all(config) as (only,):
        assert only.getsockname()[0] == "127.0.0.1"
    naming(monkeypatch, ["192.0.2.1"])
    with pytest.raises(ConfigurationError, match="cannot listen on localhost"):
        bind_all(config)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_port_that_is_taken_at_one_of_the_addresses_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naming(monkeypatch, ["::1", "127.0.0.1"])
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen(1)
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"port {port}"):
            bind_all(Config(server=ServerConfig(host="localhost", port=port), models={}))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_an_address_is_listened_on_once(host: str) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with bound_all(Config(server=ServerConfig(host=host, port=0), models={})) as listening:
        assert len(listening) == 1
