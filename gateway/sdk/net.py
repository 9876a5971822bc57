"""The hosts and addresses that a request can make the gateway connect to."""

from gateway.net.guard import (
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
