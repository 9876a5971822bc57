"""Registers the plugin's tool and routes. Heavy modules are imported on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import (
    Api,
    ChosenPlugins,
    ConfigurationError,
    NoConfig,
    OpenApiPlugin,
    OpenTool,
    Register,
    ToolServer,
    hookimpl,
)
from gateway_file_search.config import FileSearchConfig

if TYPE_CHECKING:
    from gateway_files.files import Files


@asynccontextmanager
async def open_file_search(config: FileSearchConfig, *, files: Files) -> AsyncIterator[ToolServer]:
    """The tool, with the vector stores that it searches."""
    from gateway_file_search.library import open_library
    from gateway_file_search.server import FileSearchServer

    async with open_library(config, files) as library:
        yield FileSearchServer(library)


@asynccontextmanager
async def open_stores(config: NoConfig) -> AsyncIterator[Api]:
    """The routes for vector stores. The tool keeps the library open."""
    from gateway_file_search.api import VectorStoresApi

    yield VectorStoresApi()


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    from gateway_files.config import FilesConfig

    search = chosen.table("tool", "file_search", FileSearchConfig)
    files = chosen.table("resource", "files", FilesConfig)
    if search is not None and search.path and files is not None and not files.path:
        raise ConfigurationError(
            "resources.files.path: it is not set, so files would end with the process, and vector stores in "
            "tools.file_search.path would not. Set it; the same folder will do."
        )


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register(
        "file_search",
        open_file_search,
        config=FileSearchConfig,
        summary="search in uploaded files, with citations",
        needs=("files",),
    )


@hookimpl
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register("file_search", open_stores, summary="/v1/vector_stores", needs_tool=True)
