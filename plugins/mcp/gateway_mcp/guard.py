"""Checks which URLs a request may name as MCP servers."""

from __future__ import annotations

from urllib.parse import urlsplit

from gateway.sdk import InvalidRequest, PermissionDenied
from gateway.sdk.net import HostGuard, Resolve, port_of, resolve
from gateway_mcp.config import RemoteServersConfig


class RemoteGuard(HostGuard):
    """The rules of `[tools.mcp.remote]` for URLs and addresses."""

    def __init__(self, config: RemoteServersConfig, resolve: Resolve = resolve) -> None:
        super().__init__(config.allow_hosts, allow_private=config.allow_private, resolve=resolve)

    def check_url(self, url: str) -> None:
        """Raises an error for URLs that the configuration does not allow, before any name is resolved."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise InvalidRequest(
                "server_url is not the http(s) URL of a server.",
                param="server_url",
                code="invalid_value",
            )
        if parts.username is not None or parts.password is not None:
            raise InvalidRequest(
                "server_url must not hold a user or a password. Send them as authorization or headers.",
                param="server_url",
                code="invalid_value",
            )
        if not self.allows_host(host, port_of(parts)):
            raise PermissionDenied(
                f"This server does not connect to MCP servers on '{host}'.",
                param="server_url",
                code="host_not_allowed",
            )
