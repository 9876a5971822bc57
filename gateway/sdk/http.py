"""HTTP transports for `httpx2` that connect to checked addresses only, within limits."""

from gateway.net.header_values import checked_headers, header_value
from gateway.net.http import (
    GuardedTransport,
    LimitedTransport,
    TooLarge,
)
from gateway.net.http_transport import HttpTransport
from gateway.net.proxies import Proxy, proxy_for
from gateway.net.retry_after import wanted_wait
from gateway.net.tls import accept_private_authorities, web_tls_context

__all__ = [
    "GuardedTransport",
    "HttpTransport",
    "LimitedTransport",
    "Proxy",
    "TooLarge",
    "accept_private_authorities",
    "checked_headers",
    "header_value",
    "proxy_for",
    "wanted_wait",
    "web_tls_context",
]
