"""Reads pages in helper processes, because a malicious page may take any amount of time and memory."""

from __future__ import annotations

from typing import Final

from gateway.sdk.processes import HelperDeadlineExceeded, HelperFailure, PoolBusy, ProcessPool
from gateway_browser.config import BrowserConfig
from gateway_browser.documents import PageText, read_page
from gateway_browser.errors import PageFailure
from gateway_browser.views import matching_lines

_CALLS: Final = 200
"""Number of pages that one process reads before it is replaced."""

_MAX_WAITING: Final = 128


class PageReader:
    """Converts and searches pages, in processes that are killed on a timeout.

    `key` identifies the owner: waiting owners take turns.
    """

    def __init__(self, config: BrowserConfig) -> None:
        self._seconds = config.reading_time
        self._pool = ProcessPool(
            processes=config.reading_processes,
            memory=config.reading_memory,
            max_waiting=_MAX_WAITING,
            max_calls=_CALLS,
            preload=["gateway_browser.documents", "gateway_browser.views", "lxml.etree"],
        )

    async def document(self, url: str, content: bytes, content_type: str, key: str) -> PageText:
        """Convert a page to text. Raises `PageFailure`."""
        try:
            title, lines, links = await self._pool.run(
                read_page, url, content, content_type, seconds=self._seconds, key=key
            )
        except HelperFailure as failure:
            raise PageFailure(f"it {_description(failure, self._seconds)}") from None
        return PageText(url=url, title=title, lines=tuple(lines), links=tuple(links))

    async def find(self, document: PageText, pattern: str, key: str) -> list[int]:
        """The numbers of the lines that contain `pattern`. Raises `PageFailure`."""
        try:
            return await self._pool.run(
                matching_lines, document.lines, pattern, seconds=self._seconds, key=key
            )
        except HelperFailure as failure:
            raise PageFailure(f"searching it {_description(failure, self._seconds)}") from None

    async def close(self) -> None:
        await self._pool.close()


def _description(failure: HelperFailure, seconds: float) -> str:
    match failure:
        case HelperDeadlineExceeded():
            return f"takes longer than {seconds:g} seconds"
        case PoolBusy():
            return "has to wait, as too many pages are being read; try again later"
        case _:
            return "takes more memory than this server allows, or cannot be read"
