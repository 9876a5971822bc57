"""Which connections go through the proxy that the environment names."""

from __future__ import annotations

import pytest

from gateway.base.errors import ConfigurationError
from gateway.base.net.proxies import Proxy, proxy_for

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("host", "no_proxy", "used"),
    [
        ("api.example.com", "", True),
        ("api.example.com", "example.com", False),
        ("api.example.com", ".example.com", False),
        ("api.example.com", "*.example.com", False),
        ("example.com", ".example.com", False),
        ("API.Example.com.", "example.COM", False),
        ("notexample.com", "example.com", True),
        ("api.example.com", "other, example.com:443 ", False),
        ("api.example.com", "*", False),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("11.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", False),
        ("fd00::1", "fd00::/8", False),
        ("[fd00::1]", "fd00::1", False),
        ("localhost", "", False),
        ("127.0.0.1", "", False),
        ("::1", "", False),
    ],
)
def test_no_proxy_says_which_hosts_are_reached_directly(
    host: str, no_proxy: str, used: bool
) -> None:
    found = proxy_for(host, environment={"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
    assert (found == Proxy("proxy.example", 3128)) is used
    assert (found is None) is not used


def test_another_name_of_the_host_counts_too() -> None:
    environment = {"https_proxy": PROXY, "no_proxy": "cluster.local"}
    assert proxy_for("10.0.0.1", environment=environment) is not None
    assert proxy_for("10.0.0.1", also_known_as=["a.cluster.local"], environment=environment) is None


def test_names_in_lower_case_come_first_and_credentials_are_sent_and_not_shown() -> None:
    environment = {"https_proxy": "u%40x:p@low:1", "HTTPS_PROXY": PROXY}
    found = proxy_for("a.example", environment=environment)
    assert found == Proxy("low", 1, "Basic dUB4OnA=")
    assert str(found) == "low:1"
    assert proxy_for("a.example", environment={}) is None
    assert proxy_for("a.example", environment={"HTTP_PROXY": PROXY}) is None


@pytest.mark.parametrize("url", ["socks5://u:secret@host:1", "http://u:secret@host:x", "http://"])
def test_a_proxy_that_cannot_be_used_is_an_error_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY") as caught:
        proxy_for("a.example", environment={"HTTPS_PROXY": url})
    assert "secret" not in str(caught.value)
