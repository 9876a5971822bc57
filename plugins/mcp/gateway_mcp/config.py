"""`[tools.mcp]` in `gateway.toml`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from gateway.sdk import ConfigurationError
from gateway.sdk.configuration import Positive, Seconds
from gateway.sdk.net import check_host_patterns
from gateway_mcp.programs import why_not_started

HttpTransport: TypeAlias = Literal["streamable-http", "sse"]


class McpServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.mcp.servers.<label>]`: a server that requests refer to by its label."""

    command: list[str] = []
    """The server program and its arguments. The gateway communicates over its standard input and output."""
    env: dict[str, str] = {}
    """Environment variables for the program. Of the gateway's own environment it receives only the few harmless ones
    that the SDK passes on."""
    cwd: str | None = None
    """The program's working directory."""
    url: str | None = None
    """URL of the server, instead of `command`."""
    transport: HttpTransport | Literal["stdio"] | None = None
    """Default: follows from `command`, or streamable HTTP for `url`. `sse` must be set explicitly."""
    headers: dict[str, str] = {}
    """Sent with every HTTP request, without the white space around the values."""
    scope: Literal["shared", "response"] = "shared"
    """`shared`: all responses share the connections; `response`: each response has its own connection."""
    connections: Annotated[int, Meta(ge=1, le=64)] = 1
    """Number of shared connections."""
    offer: bool = False
    """Whether every request has the tools without asking."""
    allowed_tools: list[str] | None = None
    """Names of the tools that requests may use; None: all."""
    require_approval: Literal["always", "never"] = "never"
    """Whether clients approve each call, if the request does not say."""
    time_limit: Seconds = 60.0
    """Seconds for one call."""
    connect_timeout: Seconds = 30.0
    """Seconds to connect, or to start the program, and to list the tools."""
    offer_timeout: Seconds = 5.0
    """Seconds that the start of the gateway, and requests that have the tools without asking, wait for a server that does
    not answer. They then go on with its last known tools, or without them, while the gateway still tries."""
    max_output_bytes: Positive = 262_144
    """Maximum size in bytes of one result that the model reads; the rest is cut off."""
    max_message_bytes: Positive = 8_388_608
    """Maximum size in bytes of a message received over HTTP."""
    max_tools_bytes: Positive = 262_144
    """Maximum size in bytes of the names, descriptions and schemas of all tools together. A server that exceeds it is
    refused."""
    tools_ttl: Seconds = 300.0
    """Seconds after which the tools are listed again, even if the server reports no change."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("a server has either a `command` or a `url`")
        if self.url is not None and self.transport == "stdio":
            raise ValueError("a server with a `url` is not reached by stdio")
        if self.command and self.transport not in (None, "stdio"):
            raise ValueError("a server with a `command` is reached by stdio")
        if self.command and self.headers:
            raise ValueError("`headers` are for a server with a `url`")
        if self.url is not None and (self.env or self.cwd):
            raise ValueError("`env` and `cwd` are for a server with a `command`")
        if self.url is not None and urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError("`url` begins with http:// or https://")
        if self.headers:
            from gateway.sdk.http import checked_headers  # a large import

            try:
                checked_headers(self.headers)
            except ConfigurationError as error:
                raise ValueError(str(error)) from None


class RemoteServersConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.mcp.remote]`: servers that requests name by `server_url`."""

    enabled: bool = False
    """Whether requests may name servers by `server_url`."""
    allow_hosts: list[str] = []
    """Allowed hosts: `mcp.example.com`, `*.example.com`, `example.com:8443`, or `*` for every host."""
    allow_private: bool = False
    """Whether allowed hosts may have addresses of this machine and of private networks. Those may also be reached
    without TLS."""
    max_output_bytes: Positive = 262_144
    """Maximum size in bytes of one result that the model reads; the rest is cut off."""
    max_message_bytes: Positive = 4_194_304
    """Maximum size in bytes of a received message."""
    max_tools: Positive = 256
    """Maximum number of tools. A server that has more is refused."""
    time_limit: Seconds = 60.0
    """Seconds for one call."""
    connect_timeout: Seconds = 10.0
    """Seconds to connect, and to list the tools."""
    max_tools_bytes: Positive = 262_144
    """Maximum size in bytes of the names, descriptions and schemas of all tools together. A server that exceeds it is
    refused."""
    tools_ttl: Seconds = 300.0
    """Seconds for which a tool list is cached, separately for each API key, URL and credentials."""

    def __post_init__(self) -> None:
        check_host_patterns(self.allow_hosts, "allow_hosts")


class McpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.mcp]`."""

    servers: dict[Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.-]{1,64}\Z")], McpServerConfig] = {}
    remote: RemoteServersConfig = RemoteServersConfig()

    def problems(self) -> Iterator[str]:
        """See `gateway.sdk.CheckableConfig`."""
        for label, server in self.servers.items():
            if server.command:
                reason = why_not_started(server.command[0], server.env, server.cwd)
                if reason is not None:
                    yield f"servers.{label}.command: {reason}"
