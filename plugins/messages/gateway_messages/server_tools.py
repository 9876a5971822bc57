"""The server's tools in a request, and the gateway's tools that they come to."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct

from gateway.errors import InvalidRequest, Unsupported
from gateway.wire import tools as gateway_tools
from gateway.wire.common import Value
from gateway.wire.decoding import convert

_SERVER_TYPE = re.compile(r"(web_search|web_fetch|code_execution)_(\d{8})")
_TOOLSET_TYPE = "mcp_toolset"
_PYTHON_ALONE = "20250522"
"""The version of code execution that has no shell."""

# `cache_control`, `strict`, `allowed_callers` and the like change nothing here: what is not declared is passed over.


class Entry(Value, frozen=True, kw_only=True, tag_field="__entry__"):
    """Base of the entries of `tools`. Their `type` has a version and may be left out: the tag is not on the wire."""


class Location(Value, frozen=True, kw_only=True):
    type: Literal["approximate"] = "approximate"
    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class WebEntry(Entry, frozen=True, kw_only=True, tag=True):
    """`web_search_…` or `web_fetch_…`, of any version."""

    type: str
    name: Literal["web_search", "web_fetch"]
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    max_uses: Annotated[int, Meta(ge=1)] | None = None
    user_location: Location | None = None


class CodeEntry(Entry, frozen=True, kw_only=True, tag=True):
    """`code_execution_…`, of any version."""

    type: str
    name: Literal["code_execution"]


class ToolSwitch(Value, frozen=True, kw_only=True):
    enabled: bool | None = None


class ToolsetEntry(Entry, frozen=True, kw_only=True, tag=True):
    """Which tools of an MCP server are meant."""

    type: Literal["mcp_toolset"]
    mcp_server_name: str
    default_config: ToolSwitch = ToolSwitch()
    configs: dict[str, ToolSwitch] = {}


class ToolConfiguration(Value, frozen=True, kw_only=True):
    """The older form of `ToolsetEntry`."""

    enabled: bool | None = None
    allowed_tools: list[str] | None = None


class McpServer(Value, frozen=True, kw_only=True):
    type: Literal["url"]
    name: str
    url: str
    authorization_token: str | None = None
    tool_configuration: ToolConfiguration = ToolConfiguration()


ServerEntry: TypeAlias = WebEntry | CodeEntry | ToolsetEntry


def decode_server_tool(raw: Mapping[str, Any], param: str) -> ServerEntry | None:
    """An entry of `tools` that the server runs; None for another. Raises `InvalidRequest`."""
    kind = raw.get("type")
    if kind == _TOOLSET_TYPE:
        return convert(raw, ToolsetEntry, param)
    found = _SERVER_TYPE.fullmatch(kind) if isinstance(kind, str) else None
    if found is None:
        return None
    entry: type[WebEntry | CodeEntry] = CodeEntry if found[1] == "code_execution" else WebEntry
    made = convert(raw, entry, param)
    if made.name != found[1]:
        raise InvalidRequest(
            f"A tool of the type '{kind}' has the name '{found[1]}'.", param=f"{param}.name"
        )
    return made


class Wanted(Struct, frozen=True, kw_only=True):
    """What is asked of the gateway."""

    tools: Sequence[gateway_tools.Tool]
    places: Sequence[str]
    """For each of them, the path of what it was made of."""
    types: Sequence[str]
    """For each of them, what the client calls it."""
    choices: Mapping[str, gateway_tools.ToolChoice] = {}
    """By the names that a `tool_choice` may have for them."""
    denied: Collection[tuple[str, str]] = ()
    max_uses: Mapping[str, int] = {}


def wanted_of(
    entries: Sequence[tuple[str, ServerEntry]],
    servers: Sequence[McpServer],
    available: Collection[str],
) -> Wanted:
    """What `entries`, each with its path, and `mcp_servers` come to, where the gateway runs tools of the types `available`.

    Raises `InvalidRequest` or `Unsupported`.
    """
    builder = _Builder(available)
    web = [(param, entry) for param, entry in entries if isinstance(entry, WebEntry)]
    if web:
        builder.web(web)
    for param, entry in entries:
        if isinstance(entry, CodeEntry):
            builder.code(entry, param)
    builder.mcp([(p, e) for p, e in entries if isinstance(e, ToolsetEntry)], servers)
    return Wanted(
        tools=builder.tools,
        places=builder.places,
        types=builder.types,
        choices=builder.choices,
        denied=builder.denied,
        max_uses=builder.max_uses,
    )


class _Builder:
    def __init__(self, available: Collection[str]) -> None:
        self._available = available
        self.tools: list[gateway_tools.Tool] = []
        self.places: list[str] = []
        self.types: list[str] = []
        self.choices: dict[str, gateway_tools.ToolChoice] = {}
        self.denied: set[tuple[str, str]] = set()
        self.max_uses: dict[str, int] = {}

    def _add(self, tool: gateway_tools.Tool, param: str, called: str) -> None:
        self.tools.append(tool)
        self.places.append(param)
        self.types.append(called)

    def web(self, entries: Sequence[tuple[str, WebEntry]]) -> None:
        """Searching and fetching are one tool here, with one set of wishes."""
        domains: list[str] | None = None
        location: Location | None = None
        for param, entry in entries:
            if entry.blocked_domains:
                raise Unsupported(
                    "Domains cannot be blocked here. Send the domains that are wanted as 'allowed_domains'.",
                    param=f"{param}.blocked_domains",
                )
            allowed = entry.allowed_domains or None
            if domains is not None and allowed is not None and domains != allowed:
                raise Unsupported(
                    "Searching and fetching have the same domains here. Send the same 'allowed_domains' with both tools.",
                    param=f"{param}.allowed_domains",
                )
            domains = domains or allowed
            location = location or entry.user_location
            self.choices[entry.name] = gateway_tools.WebSearchChoice()
        limits = [entry.max_uses for _, entry in entries if entry.max_uses is not None]
        if len(limits) == len(entries):
            self.max_uses["web_search"] = sum(limits)
        tool = gateway_tools.WebSearchTool(
            filters=(
                UNSET
                if domains is None
                else gateway_tools.WebSearchFilters(allowed_domains=domains)
            ),
            user_location=UNSET if location is None else _location(location),
        )
        param, first = entries[0]
        self._add(tool, param, first.type)

    def code(self, entry: CodeEntry, param: str) -> None:
        """Python, and a shell where there is one; where there is a shell alone, that."""
        if "shell" in self._available and not entry.type.endswith(_PYTHON_ALONE):
            self._add(
                gateway_tools.ShellTool(environment={"type": "container_auto"}), param, entry.type
            )
            self.choices[entry.name] = gateway_tools.ShellChoice()
            if "code_interpreter" not in self._available:
                return
        self._add(gateway_tools.CodeInterpreterTool(), param, entry.type)
        self.choices[entry.name] = gateway_tools.CodeInterpreterChoice()

    def mcp(
        self, toolsets: Sequence[tuple[str, ToolsetEntry]], servers: Sequence[McpServer]
    ) -> None:
        """The servers that the request brings, and those of the configuration that it names."""
        by_name = {entry.mcp_server_name: (param, entry) for param, entry in toolsets}
        if len(by_name) < len(toolsets):
            raise InvalidRequest(
                "Two toolsets name one server. Send one for each server.", param=toolsets[-1][0]
            )
        for index, server in enumerate(servers):
            if server.tool_configuration.enabled is False:
                by_name.pop(server.name, None)
                continue
            _, toolset = by_name.pop(server.name, ("", None))
            allowed = server.tool_configuration.allowed_tools
            self._mcp_server(
                server.name, f"mcp_servers[{index}]", toolset, server=server, allowed=allowed
            )
        for name, (param, toolset) in by_name.items():
            self._mcp_server(name, param, toolset)

    def _mcp_server(
        self,
        name: str,
        param: str,
        toolset: ToolsetEntry | None,
        *,
        server: McpServer | None = None,
        allowed: list[str] | None = None,
    ) -> None:
        if toolset is not None:
            configs = toolset.configs
            if toolset.default_config.enabled is False:
                allowed = [tool for tool, each in configs.items() if each.enabled]
            self.denied.update(
                (name, tool) for tool, each in configs.items() if each.enabled is False
            )
        token = None if server is None else server.authorization_token
        tool = gateway_tools.McpTool(
            server_label=name,
            server_url=UNSET if server is None else server.url,
            authorization=UNSET if token is None else token,
            allowed_tools=UNSET if allowed is None else allowed,
            require_approval="never",  # naming a server is approval: the API knows no other
        )
        self._add(tool, param, "mcp")


def _location(given: Location) -> gateway_tools.UserLocation:
    def told(value: str | None) -> Any:
        return UNSET if value is None else value

    return gateway_tools.UserLocation(
        city=told(given.city),
        region=told(given.region),
        country=told(given.country),
        timezone=told(given.timezone),
    )
