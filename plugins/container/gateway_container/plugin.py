"""Registers the plugin's resources, tools and routes. Heavy modules are imported on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import (
    Api,
    NoConfig,
    OpenApiPlugin,
    OpenResource,
    OpenTool,
    Register,
    ToolServer,
    hookimpl,
)
from gateway_container.config import ContainerConfig, ContainersConfig

if TYPE_CHECKING:
    from gateway_container.containers import Containers


@asynccontextmanager
async def open_resource(config: ContainersConfig) -> AsyncIterator[Containers]:
    """The containers of this gateway. Raises `ConfigurationError` if code cannot be isolated."""
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
async def open_routes(config: NoConfig, *, containers: Containers) -> AsyncIterator[Api]:
    """The routes that create containers and serve their files."""
    from gateway_container.api import ContainersApi

    yield ContainersApi(containers)


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
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register("containers", open_routes, summary="/v1/containers", needs=("containers",))
