"""A full-text index over a folder, for intranets and tests: SQLite FTS in memory, ranked by BM25."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from urllib.parse import quote

from gateway.sdk import ConfigurationError
from gateway_browser.config import LocalConfig
from gateway_browser.documents import document_of
from gateway_browser.providers import SearchHit, SearchQuery, StoredPage

_TYPES = {
    ".htm": "text/html",
    ".html": "text/html",
    ".md": "text/markdown",
    ".txt": "text/plain",
}
_WORD = re.compile(r"\w+")
_MAX_WORDS = 32


class LocalIndex:
    """A `SearchProvider` and `StoringProvider` over the files that were in a folder when it was opened."""

    def __init__(self, config: LocalConfig, database: sqlite3.Connection) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._files: dict[str, Path] = {}
        self._base = config.base_url.rstrip("/") + "/"

    def build(self, folder: Path) -> None:
        """Index all files. Raises `ConfigurationError` if the folder does not exist."""
        if not folder.is_dir():
            raise ConfigurationError(
                f"tools.browser.local.path: there is no folder {str(folder)!r}"
            )
        self._database.execute(
            "CREATE VIRTUAL TABLE pages USING fts5(url UNINDEXED, title, body, tokenize='porter')"
        )
        for file in sorted(folder.rglob("*")):
            kind = _TYPES.get(file.suffix.lower())
            if kind is None or not file.is_file():
                continue
            url = self._base + quote(file.relative_to(folder).as_posix())
            document = document_of(url, file.read_bytes(), kind)
            self._files[url] = file
            self._database.execute(
                "INSERT INTO pages VALUES (?, ?, ?)",
                (url, document.title, "\n".join(document.lines)),
            )

    async def search(self, query: SearchQuery) -> Sequence[SearchHit]:
        """Pages that contain any of the words, ranked by BM25: more and rarer words rank higher."""
        words = _WORD.findall(query.text)[:_MAX_WORDS]
        if not words:
            return []
        return await asyncio.to_thread(
            self._find, " OR ".join(f'"{word}"' for word in words), query
        )

    def _find(self, match: str, query: SearchQuery) -> Sequence[SearchHit]:
        with self._lock:
            rows = self._database.execute(
                "SELECT url, title, snippet(pages, 2, '', '', ' … ', 40) FROM pages"
                " WHERE pages MATCH ? ORDER BY bm25(pages, 0, 4, 1) LIMIT ?",
                (match, query.count),
            ).fetchall()
        return [
            SearchHit(url=url, title=title, snippet=" ".join(snippet.split()))
            for url, title, snippet in rows
        ]

    async def page(self, url: str) -> StoredPage | None:
        file = self._files.get(url.partition("#")[0])
        if file is None:
            return None
        try:
            content = await asyncio.to_thread(file.read_bytes)
        except OSError:
            return None  # the file was removed since
        return StoredPage(content=content, content_type=_TYPES[file.suffix.lower()])


@asynccontextmanager
async def open_local(config: LocalConfig) -> AsyncIterator[LocalIndex]:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        index = LocalIndex(config, database)
        await asyncio.to_thread(index.build, Path(config.path))
        yield index
