"""Tools that the gateway runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct

from gateway.protocols.prompt import ToolDefinition


class ServedTool(Struct, frozen=True, kw_only=True):
    """A tool that a tool server runs."""

    definition: ToolDefinition
    time_limit: float = 60.0
    """Seconds for one call; past it the call fails with a result that says so."""
    request_type: str | None = None
    """The tool type by which a request asks for it (`code_interpreter`, `web_search`); None: every request has it."""
    item_type: Literal[
        "mcp_call", "code_interpreter_call", "web_search_call", "file_search_call"
    ] = "mcp_call"
    """As which kind of item and event family the call is shown."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a call gave. `text` is what the model reads, also for a failed call."""

    text: str
    failed: bool = False
    details: dict[str, Any] = {}
    """What the item of this `item_type` shows besides, by the API's field names (`outputs`, `results`, `action`)."""
    annotations: Sequence[dict[str, Any]] = ()


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
