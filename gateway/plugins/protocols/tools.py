"""Tools that the gateway runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Literal, Protocol

from msgspec import Struct

from gateway.plugins.protocols.prompt import CallRecord, ToolDefinition
from gateway.plugins.protocols.tool_results import ToolResult
from gateway.wire.items import Item
from gateway.wire.tools import Tool


class ServerTool(Struct, frozen=True, kw_only=True):
    """A tool that a tool server runs. `call` receives the name in `definition`, even if the model sees another name."""

    definition: ToolDefinition
    builtin: ToolDefinition | None = None
    """Definition for models that were trained with the tool (Harmony's `browser.search`); see `BuiltinToolRenderer`."""
    time_limit: float = 60.0
    """Seconds for one call. A call that takes longer fails with a result that says so."""
    output_limit: int = 262_144
    """Maximum size of one result, in bytes of UTF-8. A longer result is truncated, with a note for the model."""
    request_type: str | None = None
    """The tool type with which a request selects it (`code_interpreter`, `web_search`; dated and preview variants count
    as the same). None: every request has the tool."""
    item_type: Literal[
        "mcp_call", "code_interpreter_call", "web_search_call", "file_search_call", "shell_call"
    ] = "mcp_call"
    """The type of the call's item and events. A `shell_call` is followed by its `shell_call_output`; its container is
    named by the server's label."""
    needs_approval: bool = False
    """Whether calls require the client's approval, if the request does not say."""
    counted_as: str | None = None
    """Name in the metrics, for tools whose own name comes from requests and must not create time series."""
    hints: Mapping[str, Any] = {}
    """Further properties reported by the server: MCP's `annotations` (`readOnlyHint`, `title`, …)."""


def _unreported() -> None:
    """The default of `ToolCall.report_progress`."""


class ToolCall(Struct, frozen=True):
    """A call to run."""

    name: str
    """The tool's name, as in the definition of its `ServerTool`."""
    arguments: dict[str, Any] = {}
    """The arguments that the model wrote, as far as they are a JSON object. They are not checked against the tool's
    schema."""
    report_progress: Callable[[], None] = _unreported
    """Reports that the call is making progress. A stream then repeats the event of the call's state: `searching`,
    `interpreting`, or `in_progress` of an mcp_call; at most one a second. To be called in the event loop. Does not
    extend the tool's time limit."""
    trace_headers: Mapping[str, str] | None = None
    """The W3C trace context of the call, if the request is traced. For the tool's requests to other services."""


class ToolSession(Protocol):
    """One response's use of a tool server."""

    async def call(self, call: ToolCall) -> ToolResult:
        """Run a tool. A failure is a `ToolResult` with `failed`; an exception is logged and turned into one.

        Cancelling the awaiting task stops the call. Calls may run concurrently.
        """
        ...


class SessionContext(Struct, frozen=True, kw_only=True):
    """The parts of a response that a tool server may need."""

    owner: str | None = None
    """The request's owner. State that is kept between requests must be separated by owner."""
    entry: Tool | None = None
    """The entry of the request's `tools` that selects the server (`filters`, `container`); None if the server's tools
    are offered without one."""
    items: Sequence[Item] = ()
    """The conversation's items, oldest first. Clients may have written them: look up ids in them only among the owner's
    data."""
    response_id: str = ""
    """Set for `session`."""
    calls: Mapping[str, CallRecord] = {}
    """All earlier calls, of any tool, by item id, oldest first: those of the conversation, then those that this
    response ran before the session is opened. Set for `session`. Those of the conversation may be forged, like
    `items`."""


class ToolServer:
    """A set of tools that the gateway runs. Opened once at start-up.

    Derive a class, set `label`, and define `tools` and either `call` or `session`. All other methods have a default. A
    method with a name that is nearly that of one of these is refused at start-up.
    """

    label: str
    """`server_label` of the mcp_call items; the container of code_interpreter_call and shell_call items."""
    request_type: str | None = None
    """Set if requests choose among several servers: the type of the entries of `tools` that do so (`mcp`). `check` then
    returns the server that an entry selects; its `tools` are listed before the response begins."""

    async def tools(self) -> Sequence[ServerTool]:
        """The tools available now.

        Called once, at start-up. For servers that `check` or `offered` return in place of a server with a
        `request_type`: called for each request. These may raise `GatewayError`, which rejects the request; any other
        exception means that the tools cannot be listed now: the response shows that, and continues without them.
        """
        return ()

    def offered(self) -> Sequence[ToolServer]:
        """For servers with a `request_type`: the servers whose tools every request has. Called for each request; their
        `tools` must respond quickly."""
        return ()

    def configured(self) -> Sequence[ToolServer]:
        """For servers with a `request_type`: all configured servers, which administrators see and may probe. Default:
        those that are offered."""
        return self.offered()

    async def probe(self) -> Sequence[ServerTool] | None:
        """Check that the service that this server depends on, such as an MCP server, can be reached, and return the
        current tools. None, the default: it depends on no service.

        Called when an administrator asks for it, not by requests. Any exception means that the service cannot be
        reached; its text is the reason that administrators read. Cancelled after ten seconds. Must not make requests
        wait.
        """
        return None

    def check(self, context: SessionContext) -> ToolServer | None:
        """Check a request that has tools of this server, before its response begins.

        Returns the server to use for this request, if it is another one: that has the same tools, unless this server
        has a `request_type`. Raises `GatewayError` with a `param` relative to the entry (`filters.allowed_domains`).
        Does not access the network.
        """
        return None

    def session(self, context: SessionContext) -> AbstractAsyncContextManager[ToolSession]:
        """Open a session. Entered at a response's first call to this server, and left when the response ends in any
        way. The default is for servers that keep nothing for a response: their own `call` runs the calls."""
        return nullcontext(self)

    async def call(self, call: ToolCall) -> ToolResult:
        """Run a tool, like `ToolSession.call`."""
        raise NotImplementedError
