"""Reading documents: loading their bytes, and extracting their text and pages in helper processes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import suppress
from hashlib import sha256
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from gateway.base.caches import ComputedCache
from gateway.base.errors import ConfigurationError, NotFound, PayloadTooLarge, RateLimited
from gateway.base.net.guard import Resolve, resolve
from gateway.base.process_pool import HelperFailure, PoolBusy
from gateway.config import DocumentsConfig, MediaConfig
from gateway.media.documents.failures import InvalidFile, UnsupportedFile
from gateway.media.documents.reader import DocumentReader
from gateway.media.documents.text import is_plain, read_text
from gateway.media.encoded import decode_base64, is_data_url, too_large
from gateway.media.file_parts import DocumentSource, FileContent
from gateway.media.pages import read_document
from gateway.media.refused import (
    DOWNLOAD_FAILED,
    EMPTY_FILE,
    FILE_NOT_FOUND,
    FILE_TOO_LARGE,
    INVALID_BASE64,
    INVALID_URL,
    MediaRefused,
)
from gateway.media.shares import OwnerShares
from gateway.plugins.protocols import Media
from gateway.storage.files.uploaded import uploaded_files

_AT_ONCE: Final = 8
"""Maximum number of documents of one owner that are fetched concurrently; the same number is decoded concurrently."""
_LONGEST_HEAD: Final = 256
"""Maximum length of a `data:` URL up to its comma."""
_IN_THREAD: Final = 1_048_576
"""Size in bytes up to which text files are decoded in this process."""
_PIXEL_BYTES: Final = 4
_HTML: Final = ("text/html", "application/xhtml+xml")
_HTML_NAME: Final = "page.html"
_CODES: Final = {
    INVALID_URL: "invalid_file_url",
    DOWNLOAD_FAILED: "failed_to_download_file",
    FILE_NOT_FOUND: "file_not_found",
    FILE_TOO_LARGE: "file_too_large",
    EMPTY_FILE: "empty_file",
    INVALID_BASE64: "invalid_base64_file",
}
"""Maps error codes for images to the codes for documents."""


class LoadedFile(Struct, frozen=True, kw_only=True):
    """The bytes of a document."""

    data: bytes
    filename: str = ""
    media_type: str = ""
    """The declared media type, without parameters; may be empty."""


class FileReader:
    """Reads documents for all requests. Leaving this asynchronous context manager ends the helper processes."""

    def __init__(
        self, config: DocumentsConfig, media: MediaConfig, *, resolve: Resolve = resolve
    ) -> None:
        """`media` configures from where files are fetched. Raises `ConfigurationError` if a package for fetching is
        missing."""
        self.config = config
        self._reader: DocumentReader | None = None
        with suppress(
            ConfigurationError
        ):  # its packages are optional; without them, only text files are read
            self._reader = DocumentReader(
                processes=config.processes,
                seconds=config.seconds,
                memory=config.memory,
                max_text=config.max_text,
                preload="gateway.media.pages",
                max_result=config.max_page_images * config.page_side**2 * _PIXEL_BYTES,
            )
        self._fetcher = None
        if media.allow_hosts:
            try:
                from gateway.media.fetching import MediaFetcher
            except ImportError as error:
                raise ConfigurationError(
                    "Fetching files (media.allow_hosts) needs the package httpx2: pip install 'litegate[media]'."
                ) from error
            self._fetcher = MediaFetcher(media, resolve, what="file", max_bytes=config.max_bytes)
        self._cache = ComputedCache[Hashable, FileContent](
            config.cache_bytes, lambda content: content.size
        )
        self._fetches = OwnerShares(_AT_ONCE)
        self._decodes = OwnerShares(_AT_ONCE)

    async def __aenter__(self) -> FileReader:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    async def read(self, source: DocumentSource, owner: str) -> FileContent:
        """The text of a document, and images of its pages if `source` wants them. Raises `MediaRefused`, or
        `RateLimited`."""
        loaded = await self.load(source, owner)
        name = loaded.filename
        if loaded.media_type in _HTML:
            name = _HTML_NAME
        html = name.lower().endswith((".html", ".htm", ".xhtml"))
        images = self.config.max_page_images if source.shows_pages else 0
        digest = await asyncio.to_thread(_digest, loaded.data)

        async def make() -> FileContent:
            return await self._content(loaded.data, name, images, owner)

        async with self._decodes.of(owner):
            # Owners share no entries: the response time would tell whether another owner has sent
            # the file.
            found = await self._cache.get((owner, html, images, digest), make)
        return FileContent(filename=loaded.filename, text=found.text, pages=found.pages)

    async def load(self, source: DocumentSource, owner: str) -> LoadedFile:
        """The bytes of a document. Raises `MediaRefused`, with the codes for documents."""
        try:
            if source.data or is_data_url(source.url):
                loaded = await self._decoded(source.data or source.url, owner)
            else:
                async with self._fetches.of(owner):
                    if source.url:
                        loaded = await self._fetched(source.url)
                    else:
                        loaded = await self._uploaded(source.file_id, owner)
        except MediaRefused as refused:
            code = _CODES.get(refused.code, refused.code)
            raise MediaRefused(code, refused.message) from None
        if not loaded.data:
            raise MediaRefused("empty_file", "The file is empty.")
        if not source.filename:
            return loaded
        return LoadedFile(data=loaded.data, filename=source.filename, media_type=loaded.media_type)

    async def _decoded(self, text: str, owner: str) -> LoadedFile:
        start, media_type = 0, ""
        if is_data_url(text):
            comma = text.find(",", 5, _LONGEST_HEAD)
            head, semicolon, encoding = text[5 : max(comma, 5)].rpartition(";")
            if not semicolon or encoding.strip().lower() != "base64":
                raise MediaRefused(
                    INVALID_URL,
                    "This data: URL is not valid. Write it as data:application/pdf;base64,<data>.",
                )
            start, media_type = comma + 1, _plain_type(head)
        async with self._decodes.of(owner):
            data = await asyncio.to_thread(decode_base64, text, self.config.max_bytes, start)
        return LoadedFile(data=data, media_type=media_type)

    async def _fetched(self, url: str) -> LoadedFile:
        if self._fetcher is None:
            raise MediaRefused(
                INVALID_URL,
                "This server fetches no files. Send the file as 'file_data', or have its host added to "
                "media.allow_hosts in the server's configuration.",
            )
        fetched = await self._fetcher.fetch(url)
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        return LoadedFile(
            data=fetched.data, filename=name, media_type=_plain_type(fetched.media_type)
        )

    async def _uploaded(self, file_id: str, owner: str) -> LoadedFile:
        if not file_id:
            raise MediaRefused(
                "missing_required_parameter",
                "The file has none of 'file_data', 'file_url' and 'file_id'. Add one.",
            )
        files = uploaded_files()
        if files is None:
            raise MediaRefused(
                FILE_NOT_FOUND,
                "File ids cannot be resolved here, since this server serves no files. Send the file as 'file_data'.",
            )
        limit = self.config.max_bytes
        try:
            file = await files.get(owner, file_id)
            data = await files.read(owner, file_id, max_bytes=limit)
        except NotFound:
            raise MediaRefused(FILE_NOT_FOUND, "There is no file with this id.") from None
        except PayloadTooLarge:
            raise MediaRefused(FILE_TOO_LARGE, too_large(limit)) from None
        return LoadedFile(data=data, filename=file.filename)

    async def _content(self, data: bytes, name: str, images: int, owner: str) -> FileContent:
        config, reader = self.config, self._reader
        if len(data) <= _IN_THREAD and is_plain(data, name):
            try:
                text = await asyncio.to_thread(read_text, data, name, config.max_text)
            except InvalidFile as invalid:
                code = (
                    "unsupported_file" if isinstance(invalid, UnsupportedFile) else "invalid_file"
                )
                raise MediaRefused(code, str(invalid)) from None
            return FileContent(filename=name, text=text.strip("\n"))
        if reader is None:
            raise MediaRefused(
                "unsupported_file", "This server reads only text files. Send the content as text."
            )
        try:
            text, pages = await reader.pool.run(
                read_document,
                data,
                name,
                config.max_text,
                config.max_pages,
                images,
                config.page_side,
                seconds=config.seconds,
                key=owner,
            )
        except PoolBusy:
            raise RateLimited(
                "Too many files wait to be read. Send the request again later."
            ) from None
        except HelperFailure as failure:
            refused = reader.failure(failure)
            raise MediaRefused(refused.code, str(refused)) from None
        return FileContent(
            filename=name,
            text=text,
            pages=[await asyncio.to_thread(_page, *page) for page in pages],
        )


def _page(data: bytes, media_type: str, width: int, height: int) -> Media:
    return Media(
        kind="image",
        data=data,
        media_type=media_type,
        sha256=sha256(data).hexdigest(),
        width=width,
        height=height,
    )


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()


def _plain_type(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
