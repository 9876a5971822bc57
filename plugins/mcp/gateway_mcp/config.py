"""`[tools.mcp]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta, Struct

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Bytes: TypeAlias = Annotated[int, Meta(ge=1)]
HttpTransport: TypeAlias = Literal["streamable-http", "sse"]


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.mcp.servers.<label>]`: a server that requests name by its label."""

    command: list[str] = []
    """The program that is the server, with its arguments; it is spoken to over its standard input and output."""
    env: dict[str, str] = {}
    """Variables for the program; of the gateway's own it gets the harmless few that the SDK passes on."""
    cwd: str | None = None
    """The program's working directory."""
    url: str | None = None
    """Where the server listens, in place of `command`."""
    transport: HttpTransport | Literal["stdio"] | None = None
    """Follows from `command` or `url`, which means streamable HTTP; `sse` has to be said."""
    headers: dict[str, str] = {}
    """Sent with every HTTP request."""
    scope: Literal["shared", "response"] = "shared"
    """Whether all responses share the connections, or each has one of its own."""
    connections: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many connections there are where they are shared."""
    offer: bool = False
    """Whether every request has the tools, without asking."""
    allowed_tools: list[str] | None = None
    """The tools that there are for requests; None: all."""
    require_approval: Literal["always", "never"] = "never"
    """Whether clients approve each call, where a request does not say."""
    time_limit: Seconds = 60.0
    """Seconds for one call."""
    connect_timeout: Seconds = 10.0
    """Seconds to connect, and to list the tools."""
    max_output_bytes: Bytes = 262_144
    """What the model reads of one result at most; the rest is cut off."""
    max_message_bytes: Bytes = 8_388_608
    """The largest message that is taken over HTTP."""
    tools_ttl: Seconds = 300.0
    """Seconds after which the tools are listed anew, should the server not say that they have changed."""

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


class RemoteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.mcp.remote]`: servers that requests name by `server_url`."""

    enabled: bool = False
    """Whether requests may."""
    allow_hosts: list[str] = []
    """Which hosts: `mcp.example.com`, `*.example.com`, `example.com:8443`, or `*` for every host."""
    allow_private: bool = False
    """Whether these may be addresses of this machine and of private networks, which are reached without TLS too."""
    max_output_bytes: Bytes = 262_144
    """What the model reads of one result at most; the rest is cut off."""
    max_message_bytes: Bytes = 4_194_304
    """The largest message that is taken."""
    max_tools: Annotated[int, Meta(ge=1)] = 256
    """A server with more tools is refused."""
    time_limit: Seconds = 60.0
    """Seconds for one call."""
    connect_timeout: Seconds = 10.0
    """Seconds to connect, and to list the tools."""
    tools_ttl: Seconds = 300.0
    """Seconds for which a tool list is kept, apart for each API key, URL and credentials."""


class McpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.mcp]`."""

    servers: dict[Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_.-]{1,64}\Z")], ServerConfig] = {}
    remote: RemoteConfig = RemoteConfig()
