"""Checks of the hosts and addresses to which a request can make the gateway connect."""

from gateway.base.net.guard import (
    AddressRefused,
    HostGuard,
    Resolve,
    ascii_host,
    check_host_patterns,
    port_of,
    resolve,
)

__all__ = [
    "AddressRefused",
    "HostGuard",
    "Resolve",
    "ascii_host",
    "check_host_patterns",
    "port_of",
    "resolve",
]
