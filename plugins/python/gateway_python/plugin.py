"""What the plugin offers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway import hookimpl
from gateway.hookspecs import OpenTool, Register
from gateway.protocols import ToolServer
from gateway_container.config import SandboxConfig


class PythonConfig(SandboxConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.python]`: the keys of `[tools.container]`, for containers of its own."""


@asynccontextmanager
async def open_interpreters(config: PythonConfig) -> AsyncIterator[ToolServer]:
    """The tool `python`. Raises `ConfigurationError` where code cannot be kept apart."""
    from gateway_container.containers import open_containers
    from gateway_python.interpreter import PythonServer

    async with open_containers(config, "python") as containers:
        yield PythonServer(config, containers)


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("python", open_interpreters, config=PythonConfig, summary="Python in sandboxes")
