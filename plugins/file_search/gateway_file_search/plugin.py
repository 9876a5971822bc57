"""What the plugin offers. What is heavy is imported when it is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway import hookimpl
from gateway.hookspecs import OpenFront, OpenTool, Register
from gateway.protocols import Front, NoConfig, ToolServer
from gateway_file_search.config import FileSearchConfig


@asynccontextmanager
async def open_file_search(config: FileSearchConfig) -> AsyncIterator[ToolServer]:
    """The tool, with the files and vector stores that it searches."""
    from gateway_file_search.library import open_library
    from gateway_file_search.server import FileSearchServer

    async with open_library(config) as library:
        yield FileSearchServer(library)


@asynccontextmanager
async def open_files(config: NoConfig) -> AsyncIterator[Front]:
    """The routes by which files and vector stores are made; the tool has them open."""
    from gateway_file_search.front import FilesFront

    yield FilesFront()


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register(
        "file_search",
        open_file_search,
        config=FileSearchConfig,
        summary="search in uploaded files, with citations",
    )


@hookimpl
def gateway_register_routes(register: Register[OpenFront]) -> None:
    register("file_search", open_files, summary="/v1/files and /v1/vector_stores")
