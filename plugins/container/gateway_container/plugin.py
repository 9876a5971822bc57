"""What the plugin offers. What is heavy is imported when it is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway import hookimpl
from gateway.hookspecs import OpenFront, OpenResource, OpenTool, Register
from gateway.protocols import Front, NoConfig, ToolServer
from gateway_container.config import ContainerConfig, ContainersConfig

if TYPE_CHECKING:
    from gateway_container.containers import Containers


@asynccontextmanager
async def open_resource(config: ContainersConfig) -> AsyncIterator[Containers]:
    """The containers of this gateway. Raises `ConfigurationError` where code cannot be kept apart."""
    from gateway_container.containers import open_containers

    async with open_containers(config) as containers:
        yield containers


@asynccontextmanager
async def open_shells(
    config: ContainerConfig, *, containers: Containers
) -> AsyncIterator[ToolServer]:
    """The tools `shell` and `container.exec`."""
    from gateway_container.shell import ShellServer

    yield ShellServer(config, containers)


@asynccontextmanager
async def open_routes(config: NoConfig, *, containers: Containers) -> AsyncIterator[Front]:
    """The routes by which containers are made, and their files fetched."""
    from gateway_container.front import ContainersFront

    yield ContainersFront(containers)


@hookimpl
def gateway_register_resources(register: Register[OpenResource]) -> None:
    register(
        "containers",
        open_resource,
        config=ContainersConfig,
        summary="sandboxes with files, for the tools python and container",
    )


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register(
        "container",
        open_shells,
        config=ContainerConfig,
        summary="shell commands in sandboxes",
        needs=("containers",),
    )


@hookimpl
def gateway_register_routes(register: Register[OpenFront]) -> None:
    register("containers", open_routes, summary="/v1/containers", needs=("containers",))
