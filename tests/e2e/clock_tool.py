"""A plugin with the tool `clock`, which the gateway runs, and a function of the client."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.plugins.protocols import (
    ServerTool,
    SessionContext,
    ToolCall,
    ToolDefinition,
    ToolResult,
)
from gateway.sdk import ToolServer, hookimpl

FUNCTION = {"type": "function", "name": "mine", "parameters": {"type": "object"}}


class Clock(ToolServer):
    label = "clock"

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name="clock"))]

    @asynccontextmanager
    async def session(self, context: SessionContext) -> Any:
        yield self

    async def call(self, call: ToolCall) -> ToolResult:
        return ToolResult(text="noon")


class ClockPlugin:
    @asynccontextmanager
    async def open(self, config: Any) -> Any:
        yield Clock()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("clock", self.open)
