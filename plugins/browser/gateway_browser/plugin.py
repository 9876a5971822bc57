"""What the plugin offers. HTTP and the HTML parser are imported when it is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway import hookimpl
from gateway.hookspecs import OpenTool, Register
from gateway.protocols import ToolServer
from gateway_browser.config import BrowserConfig


@asynccontextmanager
async def open_browser(config: BrowserConfig) -> AsyncIterator[ToolServer]:
    """The browser of `config`, with its search provider."""
    import lxml.etree  # type: ignore[import-untyped]  # noqa: F401 (so that the first page does not wait for it)

    from gateway_browser.fetching import Fetcher
    from gateway_browser.providers.opening import open_provider
    from gateway_browser.server import BrowserServer

    async with open_provider(config) as provider:
        yield BrowserServer(config, provider, Fetcher(config))


@hookimpl
def gateway_register_tools(register: Register[OpenTool]) -> None:
    register("browser", open_browser, config=BrowserConfig, summary="web search and pages")
