"""The HTTP client (`httpx2`) with limits and checks of addresses; proxies, headers and certificates for other connections."""

from gateway.base.net.header_values import checked_headers, header_value
from gateway.base.net.http import FetchFailure, TooLarge, fetched, http_client
from gateway.base.net.proxies import Proxy, proxy_for
from gateway.base.net.retry_after import wanted_wait
from gateway.base.net.tls import accept_private_authorities, web_tls_context

__all__ = [
    "FetchFailure",
    "Proxy",
    "TooLarge",
    "accept_private_authorities",
    "checked_headers",
    "fetched",
    "header_value",
    "http_client",
    "proxy_for",
    "wanted_wait",
    "web_tls_context",
]
