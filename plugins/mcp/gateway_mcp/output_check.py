"""Output schemas of a server's tools, and validation of results against them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from mcp.types import CallToolResult, Tool

from gateway.sdk.processes import FunctionFailed, HelperDeadlineExceeded, HelperFailure, ProcessPool
from gateway_mcp.messages import OUTPUT_SCHEMA
from gateway_mcp.output_schema import schema_violation

_SECONDS: Final = 2.0
"""Seconds for one result."""


class OutputCheck:
    """Validates the results of one server's tools, in helper processes."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool
        self._schemas: dict[str, str] = {}

    def listed(self, tools: Iterable[Tool]) -> None:
        """Set the server's current tools."""
        self._schemas = {
            tool.name: msgspec.json.encode(schema).decode()
            for tool in tools
            if (schema := (tool.meta or {}).get(OUTPUT_SCHEMA)) is not None
        }

    async def problem(self, name: str, result: CallToolResult) -> str:
        """Describe how a tool's result violates its output schema. Empty if it is valid or the tool has no output
        schema."""
        schema = self._schemas.get(name)
        if schema is None or result.is_error:
            return ""
        if result.structured_content is None:
            return "its answer has no structured content, which its outputSchema demands"
        value = msgspec.json.encode(result.structured_content).decode()
        try:
            found = await self._pool.run(schema_violation, schema, value, seconds=_SECONDS)
        except HelperDeadlineExceeded:
            return "its answer could not be checked against its outputSchema in time"
        except FunctionFailed as failure:
            return f"its answer could not be checked against its outputSchema ({failure.name})"
        except HelperFailure:
            return "its answer could not be checked against its outputSchema"
        return f"its answer does not fit its outputSchema: {found}" if found else ""
