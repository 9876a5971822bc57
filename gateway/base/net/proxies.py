"""The proxy that environment variables name for TLS connections."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from gateway.base.errors import ConfigurationError
from gateway.base.net.header_values import header_value


class Proxy(Struct, frozen=True):
    """An HTTP proxy that opens tunnels (CONNECT)."""

    host: str
    port: int
    authorization: str | None = None
    """Value of `Proxy-Authorization`. A secret."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def proxy_for(
    host: str, *, also_known_as: Iterable[str] = (), environment: Mapping[str, str] | None = None
) -> Proxy | None:
    """The proxy for TLS connections to `host`, from `HTTPS_PROXY`. None if that is not set, if `NO_PROXY` matches the
    host or one of its other names and addresses, or if the host is this machine.

    The variables' names in lower case take precedence, as in other programs. `NO_PROXY` is a list of names (which
    include all names below them), addresses, networks such as `10.0.0.0/8`, or `*`. Raises `ConfigurationError` for a
    proxy that cannot be used.
    """
    found = os.environ if environment is None else environment
    named = found.get("https_proxy") or found.get("HTTPS_PROXY") or ""
    named = header_value(named, "HTTPS_PROXY")
    if not named:
        return None
    exempt = found.get("no_proxy") or found.get("NO_PROXY") or ""
    if any(_is_exempt(each, exempt) for each in (host, *also_known_as)):
        return None
    return _parsed(named)


def _parsed(url: str) -> Proxy:
    # The URL may contain a password, so error messages do not contain it.
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise ConfigurationError("HTTPS_PROXY is not an address like http://host:3128.") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigurationError(
            "HTTPS_PROXY is not an address like http://host:3128: proxies that are spoken to by another scheme cannot be used."
        )
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, 80 if port is None else port, authorization)


def _is_exempt(host: str, exempt: str) -> bool:
    host = host.strip("[]").rstrip(".").lower()
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        address = None
    if host == "localhost" or host.endswith(".localhost"):
        return True
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if address is not None and (mapped or address).is_loopback:
        return True
    for entry in exempt.split(","):
        pattern = entry.strip().lower().strip("[]")
        if pattern == "*":
            return True
        if not pattern:
            continue
        if address is not None:
            try:
                if address in ip_network(pattern, strict=False):
                    return True
            except ValueError:
                pass
        name = pattern.removeprefix("*").lstrip(".").rstrip(".")
        name = name if ":" not in name else name.partition(":")[0]
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False
