"""What the plugin offers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway import hookimpl
from gateway.hookspecs import OpenTool, Register
from gateway.protocols import ToolServer
from gateway_container.config import ContainerConfig


@asynccontextmanager
async def open_shells(config: ContainerConfig) -> AsyncIterator[ToolServer]:
    """The tools `shell` and `container.exec`. Raises `ConfigurationError` where code cannot be kept apart."""
    from gateway_container.containers import open_containers
    from gateway_container.shell import ShellServer

    async with open_containers(config, "container") as containers:
        yield ShellServer(config, containers)


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register(
        "container", open_shells, config=ContainerConfig, summary="shell commands in sandboxes"
    )
