"""Registers the plugin's resource and routes. Heavy modules are imported on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.sdk import Api, NoConfig, OpenApiPlugin, OpenResource, Register, hookimpl
from gateway_files.config import FilesConfig

if TYPE_CHECKING:
    from gateway_files.files import Files


@asynccontextmanager
async def open_resource(config: FilesConfig) -> AsyncIterator[Files]:
    """The uploaded files of this gateway."""
    from gateway_files.files import open_files

    async with open_files(config) as files:
        yield files


@asynccontextmanager
async def open_routes(config: NoConfig, *, files: Files) -> AsyncIterator[Api]:
    """The routes `/v1/files` and `/v1/uploads`."""
    from gateway_files.api import FilesApi

    yield FilesApi(files)


@hookimpl
def gateway_register_resources(register: Register[OpenResource]) -> None:
    register("files", open_resource, config=FilesConfig, summary="uploaded files")


@hookimpl
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register("files", open_routes, summary="/v1/files, /v1/uploads", needs=("files",))
