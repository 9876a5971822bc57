"""The server tools of a request, converted to tools of the gateway."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct

from gateway.sdk import InvalidRequest, ParamPath, Unsupported
from gateway.sdk.wire import Value, convert
from gateway.sdk.wire import tools as gateway_tools

_SERVER_TYPE = re.compile(r"(web_search|web_fetch|code_execution)_(\d{8})")
_TOOLSET_TYPE = "mcp_toolset"
_PYTHON_ALONE = "20250522"
"""The version of code execution without a shell."""

# Undeclared fields are ignored: `cache_control`, `strict`, `allowed_callers` and the like have no effect here.


class ToolEntry(Value, frozen=True, kw_only=True, tag_field="__entry__"):
    """Base class of the entries of `tools`. Their `type` has a version and may be missing: the tag is not on the
    wire."""


class Location(Value, frozen=True, kw_only=True):
    type: Literal["approximate"] = "approximate"
    city: str | None = None
    region: str | None = None
    country: str | None = None
    timezone: str | None = None


class WebEntry(ToolEntry, frozen=True, kw_only=True, tag=True):
    """`web_search_…` or `web_fetch_…`, of any version."""

    type: str
    name: Literal["web_search", "web_fetch"]
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    max_uses: Annotated[int, Meta(ge=1)] | None = None
    user_location: Location | None = None


class CodeEntry(ToolEntry, frozen=True, kw_only=True, tag=True):
    """`code_execution_…`, of any version."""

    type: str
    name: Literal["code_execution"]


class ToolSwitch(Value, frozen=True, kw_only=True):
    enabled: bool | None = None


class ToolsetEntry(ToolEntry, frozen=True, kw_only=True, tag=True):
    """The selected tools of an MCP server."""

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


def decode_server_tool(raw: Mapping[str, Any], param: ParamPath) -> ServerEntry | None:
    """The server tool in an entry of `tools`, or None if it is another kind of tool. Raises `InvalidRequest`."""
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
            f"A tool of the type '{kind}' has the name '{found[1]}'.", param=(*param, "name")
        )
    return made


class ToolOrigin(Struct, frozen=True, kw_only=True):
    """The entry of a request that a tool was made from."""

    param: ParamPath
    type: str
    """Its type in the request; `mcp` for servers, `custom` for tools of the client."""
    plugin: str = ""
    """The table of `[tools]` that configures the tool in the gateway, if the gateway runs it."""


class ToolSelection(Struct, frozen=True, kw_only=True):
    """The requested tools."""

    tools: Sequence[gateway_tools.Tool]
    origins: Sequence[ToolOrigin]
    """For each tool, where it comes from."""
    choices: Mapping[str, gateway_tools.ToolChoice] = {}
    """Tool choices by the names that a `tool_choice` may use."""
    denied: Collection[tuple[str, str]] = ()
    max_uses: Mapping[str, int] = {}


def select_tools(
    entries: Sequence[tuple[ParamPath, ServerEntry]],
    servers: Sequence[McpServer],
    available: Collection[str],
) -> ToolSelection:
    """Convert `entries`, each with its path, and `mcp_servers`. `available` are the types of tools that the gateway
    runs.

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
    return ToolSelection(
        tools=builder.tools,
        origins=builder.origins,
        choices=builder.choices,
        denied=builder.denied,
        max_uses=builder.max_uses,
    )


class _Builder:
    def __init__(self, available: Collection[str]) -> None:
        self._available = available
        self.tools: list[gateway_tools.Tool] = []
        self.origins: list[ToolOrigin] = []
        self.choices: dict[str, gateway_tools.ToolChoice] = {}
        self.denied: set[tuple[str, str]] = set()
        self.max_uses: dict[str, int] = {}

    def _add(self, tool: gateway_tools.Tool, param: ParamPath, called: str, *, plugin: str) -> None:
        self.tools.append(tool)
        self.origins.append(ToolOrigin(param=param, type=called, plugin=plugin))

    def web(self, entries: Sequence[tuple[ParamPath, WebEntry]]) -> None:
        """Search and fetch are one tool here, with one set of options."""
        allowed: list[str] | None = None
        blocked: list[str] | None = None
        location: Location | None = None
        for param, entry in entries:
            if entry.allowed_domains and entry.blocked_domains:
                raise InvalidRequest(
                    "A tool has either 'allowed_domains' or 'blocked_domains'. Send one of them.",
                    param=(*param, "blocked_domains"),
                )
            allowed = _shared(allowed, entry.allowed_domains, (*param, "allowed_domains"))
            blocked = _shared(blocked, entry.blocked_domains, (*param, "blocked_domains"))
            location = location or entry.user_location
            self.choices[entry.name] = gateway_tools.WebSearchChoice()
        limits = [entry.max_uses for _, entry in entries if entry.max_uses is not None]
        if len(limits) == len(entries):
            self.max_uses["web_search"] = sum(limits)
        tool = gateway_tools.WebSearchTool(
            filters=(
                UNSET
                if allowed is None and blocked is None
                else gateway_tools.WebSearchFilters(
                    allowed_domains=UNSET if allowed is None else allowed,
                    blocked_domains=UNSET if blocked is None else blocked,
                )
            ),
            user_location=UNSET if location is None else _location(location),
        )
        param, first = entries[0]
        self._add(tool, param, first.type, plugin="browser")

    def code(self, entry: CodeEntry, param: ParamPath) -> None:
        """Python, and a shell if there is one. If there is only a shell, the shell alone."""
        if "shell" in self._available and not entry.type.endswith(_PYTHON_ALONE):
            shell = gateway_tools.ShellTool(environment={"type": "container_auto"})
            self._add(shell, param, entry.type, plugin="container")
            self.choices[entry.name] = gateway_tools.ShellChoice()
            if "code_interpreter" not in self._available:
                return
        self._add(gateway_tools.CodeInterpreterTool(), param, entry.type, plugin="python")
        self.choices[entry.name] = gateway_tools.CodeInterpreterChoice()

    def mcp(
        self, toolsets: Sequence[tuple[ParamPath, ToolsetEntry]], servers: Sequence[McpServer]
    ) -> None:
        """The servers in the request, and the configured servers that it names."""
        by_name = {entry.mcp_server_name: (param, entry) for param, entry in toolsets}
        if len(by_name) < len(toolsets):
            raise InvalidRequest(
                "Two toolsets name one server. Send one for each server.", param=toolsets[-1][0]
            )
        for index, server in enumerate(servers):
            if server.tool_configuration.enabled is False:
                by_name.pop(server.name, None)
                continue
            _, toolset = by_name.pop(server.name, ((), None))
            allowed = server.tool_configuration.allowed_tools
            self._mcp_server(
                server.name, ("mcp_servers", index), toolset, server=server, allowed=allowed
            )
        for name, (param, toolset) in by_name.items():
            self._mcp_server(name, param, toolset)

    def _mcp_server(
        self,
        name: str,
        param: ParamPath,
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
            require_approval="never",  # naming a server is approval: the API has no other mechanism
        )
        self._add(tool, param, "mcp", plugin="mcp")


def _shared(
    domains: list[str] | None, given: list[str] | None, param: ParamPath
) -> list[str] | None:
    """The list that search and fetch share. Raises `Unsupported` if `given` is another one than `domains`."""
    if domains and given and domains != given:
        raise Unsupported(
            f"Search and fetch share one list of domains. Send the same '{param[-1]}' with both tools.",
            param=param,
        )
    return domains or given or None


def _location(given: Location) -> gateway_tools.UserLocation:
    def empty_as_none(value: str | None) -> Any:
        return UNSET if value is None else value

    return gateway_tools.UserLocation(
        city=empty_as_none(given.city),
        region=empty_as_none(given.region),
        country=empty_as_none(given.country),
        timezone=empty_as_none(given.timezone),
    )
