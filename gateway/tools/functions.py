"""Typed Python functions as tools that the gateway runs.

    async def weather(city: str, unit: Literal["C", "F"] = "C") -> dict[str, object]:
        \"\"\"The weather in a city.\"\"\"

    @hookimpl
    def gateway_register_tools(register):
        register("weather", functions("weather", weather))

The docstring becomes the tool's description, and the signature its schema: of any types that msgspec can decode, with a
description of an argument by `Annotated[str, Meta(description=...)]`. The model reads the result: a string unchanged,
anything else as JSON.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, get_type_hints

import msgspec

from gateway.base.errors import ConfigurationError
from gateway.base.shares import FairThreads
from gateway.plugins.protocols import ServerTool, ToolCall, ToolDefinition, ToolResult, ToolServer

Function = Callable[..., Any]

FUNCTION_THREADS = "tool-function"
"""Prefix of the names of the threads in which functions run. All functions of a process share these threads."""

_THREADS = FairThreads(32, thread_name_prefix=FUNCTION_THREADS)
"""Separate from asyncio's threads, in which large requests are read and rendered: functions that hang would delay
these."""


class PythonTool:
    """One function with the JSON schema of its arguments."""

    def __init__(self, function: Function, *, time_limit: float) -> None:
        """`time_limit` is in seconds, per call. Raises `ConfigurationError` for a signature without type annotations."""
        self._function = function
        name = function.__name__
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        hints = get_type_hints(function, include_extras=True)
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ConfigurationError(
                    f"The tool {name} takes *{parameter.name}: give each argument a name and a type."
                )
            if parameter.name not in hints:
                raise ConfigurationError(
                    f"The argument {parameter.name} of the tool {name} has no type: annotate it."
                )
            kind = hints[parameter.name]
            if parameter.default is parameter.empty:
                fields.append((parameter.name, kind))
            else:
                fields.append((parameter.name, kind, parameter.default))
        self._arguments = msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
        (schema,), components = msgspec.json.schema_components(
            [self._arguments], ref_template="#/$defs/{name}"
        )
        parameters = dict(components.pop(name, schema))
        parameters.pop("title", None)
        if components:
            parameters["$defs"] = components
        self.server_tool = ServerTool(
            definition=ToolDefinition(
                name=name, description=inspect.getdoc(function), parameters=parameters
            ),
            time_limit=time_limit,
        )

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the function. Wrong arguments and exceptions become results that the model reads.

        A synchronous function runs in one of 32 threads that all functions share; waiting for a thread counts towards
        the time limit. Cancelling the call does not stop such a function.
        """
        try:
            decoded = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            return ToolResult(text=f"Wrong arguments: {error}.", failed=True)
        given = {field: getattr(decoded, field) for field in self._arguments.__struct_fields__}
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(**given)
        else:
            work = partial(copy_context().run, self._function, **given)
            result = await asyncio.get_running_loop().run_in_executor(_THREADS, work)
        if isinstance(result, ToolResult):
            return result
        return ToolResult(
            text=result if isinstance(result, str) else msgspec.json.encode(result).decode()
        )


class FunctionServer(ToolServer):
    """Functions as a tool server. They share no state between responses."""

    def __init__(self, label: str, tools: Sequence[PythonTool]) -> None:
        self.label = label
        self._tools = {tool.server_tool.definition.name: tool for tool in tools}

    async def tools(self) -> Sequence[ServerTool]:
        return [tool.server_tool for tool in self._tools.values()]

    async def call(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult(text=f"There is no tool named '{call.name}'.", failed=True)
        return await tool.call(call.arguments)


def functions(
    label: str, *tools: Function, time_limit: float = 60.0
) -> Callable[[Any], AbstractAsyncContextManager[ToolServer]]:
    """Make the opener of a tool server for plain functions, to be registered by `gateway_register_tools`. `label` is
    the server's name in `mcp_call` items."""
    server = FunctionServer(label, [PythonTool(tool, time_limit=time_limit) for tool in tools])

    @asynccontextmanager
    async def open_tools(config: Any) -> AsyncIterator[ToolServer]:
        yield server

    return open_tools
