"""Registers the routes. Heavy modules are imported on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import Api, OpenApiPlugin, Register, hookimpl
from gateway_prompts.config import PromptsConfig


@asynccontextmanager
async def open_routes(config: PromptsConfig) -> AsyncIterator[Api]:
    """The routes `/v1/prompts`."""
    from gateway_prompts.api import PromptsApi

    yield PromptsApi(config)


@hookimpl
def gateway_register_apis(register: Register[OpenApiPlugin]) -> None:
    register("prompts", open_routes, config=PromptsConfig, summary="/v1/prompts")
