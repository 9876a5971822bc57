"""Tools that the gateway runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from gateway.protocols.prompt import (
    CallRecord,
    ContainerFileSource,
    FileSource,
    Source,
    ToolDefinition,
)
from gateway.wire.items import Item
from gateway.wire.tools import Tool


class ServedTool(Struct, frozen=True, kw_only=True):
    """A tool that a tool server runs. `call` is given its `definition`'s name, whatever the model is told."""

    definition: ToolDefinition
    builtin: ToolDefinition | None = None
    """What models are told that know it by themselves (Harmony's `browser.search`): see `KnowingRenderer`."""
    time_limit: float = 60.0
    """Seconds for one call; past it the call fails with a result that says so."""
    output_limit: int = 262_144
    """Bytes of UTF-8 that the model reads of one result; the rest is cut off, with a note that says so."""
    request_type: str | None = None
    """The tool type by which a request asks for it (`code_interpreter`, `web_search`; dated and preview variants are
    asked for by the same); None: every request has it."""
    item_type: Literal[
        "mcp_call", "code_interpreter_call", "web_search_call", "file_search_call", "shell_call"
    ] = "mcp_call"
    """As which kind of item and event family the call is shown; `shell_call` with its `shell_call_output`, whose
    container is named by the server's label."""
    needs_approval: bool = False
    """Whether the client approves each call first, where its request does not say."""
    counted_as: str | None = None
    """Its name in the metrics, where its own must not make a time series: requests can bring any name."""
    hints: Mapping[str, Any] = {}
    """What the server says of the tool besides: MCP's `annotations` (`readOnlyHint`, `title`, …)."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a call gave. `text` is what the model reads, also for a failed call."""

    text: str
    failed: bool = False
    fault: Literal["arguments", "unavailable", "time_limit", "max_uses"] | None = None
    """Why it failed, where that is one of these."""
    details: dict[str, Any] = {}
    """What the item of this `item_type` shows besides, by the API's field names (`outputs`, `results`, `action`)."""
    sources: Sequence[Source] = ()
    """What the marks in `text` stand for: where the model repeats one, the answer gets an annotation."""
    files: Sequence[FileSource] = ()
    """Likewise, for marks of uploaded files."""
    container_files: Sequence[ContainerFileSource] = ()
    """Files in containers that the model may link."""


class ToolSession(Protocol):
    """One response's use of a tool server."""

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Run a tool. Failure is a `ToolResult` with `failed`; an exception is turned into one and logged.

        Cancelling the awaiting task stops the call. Calls may run at once.
        """
        ...


class ToolServer(Protocol):
    """A set of tools that the gateway runs. Opened once at start-up."""

    @property
    def label(self) -> str:
        """`server_label` of the mcp_call items."""
        ...

    async def tools(self) -> Sequence[ServedTool]:
        """The tools offered now."""
        ...

    def session(self, response_id: str) -> AbstractAsyncContextManager[ToolSession]:
        """Opened at a response's first call to this server, left when the response ends, however it ends."""
        ...


@runtime_checkable
class ContinuingToolServer(Protocol):
    """A `ToolServer` whose sessions go on where those of earlier responses ended."""

    def session_after(
        self, response_id: str, calls: Mapping[str, CallRecord]
    ) -> AbstractAsyncContextManager[ToolSession]:
        """Called in place of `session`. `calls` has the conversation's earlier calls, of any tool, by item id."""
        ...


@runtime_checkable
class FittingToolServer(Protocol):
    """A `ToolServer` whose calls depend on the entry of `tools` that asks for it (`filters`, `container`)."""

    def for_entry(self, tool: Tool, *, owner: str | None) -> ToolServer:
        """The server for one request. It has the same tools; does no network of its own.

        Raises `GatewayError` with a `param` that is relative to the entry (`filters.allowed_domains`). `owner` is whose
        request it is; what is kept between requests must be kept apart by it.
        """
        ...


@runtime_checkable
class ConversationToolServer(FittingToolServer, Protocol):
    """A `FittingToolServer` that goes on with what the conversation has used (the container of an earlier call)."""

    def for_conversation(
        self, tool: Tool, items: Sequence[Item], *, owner: str | None
    ) -> ToolServer:
        """Called in place of `for_entry`, where there is a conversation: `items` are its own, oldest first.

        Clients may have written them: what they name must be looked up as `owner`'s.
        """
        ...


@runtime_checkable
class OwnedToolServer(Protocol):
    """A `ToolServer` that keeps things for whoever asks, with tools that every request has."""

    def for_owner(self, owner: str | None) -> ToolServer:
        """The server for one request of `owner` that has no entry for it. It has the same tools and label."""
        ...


@runtime_checkable
class ToolServers(Protocol):
    """Tool servers that requests choose from, each by an entry of its own `tools`. Opened once at start-up.

    What `gateway_register_tools` may offer in place of a single `ToolServer`.
    """

    @property
    def request_type(self) -> str:
        """The `type` of the entries that name these servers (`mcp`)."""
        ...

    def offered(self) -> Sequence[ToolServer]:
        """Those whose tools every request has. Asked at each request; their `tools` must answer at once or soon."""
        ...

    def for_request(self, tool: Tool, *, owner: str | None) -> ToolServer:
        """The server that an entry of that type names. Does no network of its own: `tools` and `session` do.

        Its `tools` may raise `GatewayError` for what must not be reached: the request is refused with that. Any other
        exception means that the tools cannot be listed now: the response shows that and goes on without them. Raises
        `InvalidRequest` or another `GatewayError`, with a `param` that is relative to the entry (`server_url`).
        `owner` is whose request it is; what is kept between requests must be kept apart by it.
        """
        ...
