"""Registers the plugin's tools. HTTP client and HTML parser are imported on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.sdk import OpenTool, Register, ToolServer, hookimpl
from gateway_browser.config import BrowserConfig


@asynccontextmanager
async def open_browser(config: BrowserConfig) -> AsyncIterator[ToolServer]:
    """The browser of `config`, with its search provider."""
    from gateway_browser.fetching import PageFetcher
    from gateway_browser.providers.opening import open_provider
    from gateway_browser.reader import PageReader
    from gateway_browser.server import BrowserServer

    reader = PageReader(config)
    try:
        async with open_provider(config) as provider:
            yield BrowserServer(config, provider, PageFetcher(config, reader), reader)
    finally:
        await reader.close()


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("browser", open_browser, config=BrowserConfig, summary="web search and pages")
