"""The browser keeps what every tool server promises, with each provider that needs no key of somebody's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.protocols import ToolServer
from gateway_browser.config import BrowserConfig, LocalConfig, SearxngConfig
from gateway_browser.plugin import open_browser
from gateway_testing import ToolServerContract


class TestBrowserWithSearxng(ToolServerContract):
    good_call = ("web_search", {"query": "towers"})
    bad_call = ("web_search", {"query": ""})

    @pytest.fixture
    async def tool_server(self, site: Any) -> AsyncIterator[ToolServer]:
        config = BrowserConfig(
            provider="searxng", searxng=SearxngConfig(url=site.url), allow_private=True
        )
        TestBrowserWithSearxng.slow_call = ("open_page", {"id": f"{site.url}/hang"})
        async with open_browser(config) as server:
            yield server


class TestBrowserWithAnIndex(ToolServerContract):
    good_call = ("open_page", {"id": "http://intra.test/tower.md"})
    bad_call = ("find_in_page", {"pattern": "x"})

    @pytest.fixture
    async def tool_server(self, tmp_path: Path) -> AsyncIterator[ToolServer]:
        (tmp_path / "tower.md").write_text("# Tower\n\nIt is high.")
        local = LocalConfig(path=str(tmp_path), base_url="http://intra.test/")
        async with open_browser(BrowserConfig(provider="local", local=local)) as server:
            yield server
