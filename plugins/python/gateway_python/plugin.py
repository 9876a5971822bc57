"""Registers the plugin's tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import OpenTool, Register, ToolServer, hookimpl
from gateway_container.config import CallsConfig

if TYPE_CHECKING:
    from gateway_container.containers import Containers


class PythonConfig(CallsConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.python]`. Resource limits of the code are configured in `[resources.containers]`."""


@asynccontextmanager
async def open_interpreters(
    config: PythonConfig, *, containers: Containers
) -> AsyncIterator[ToolServer]:
    """The tool `python`."""
    from gateway_python.interpreter import PythonServer

    yield PythonServer(config, containers)


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register(
        "python",
        open_interpreters,
        config=PythonConfig,
        summary="Python in sandboxes",
        needs=("containers",),
    )
