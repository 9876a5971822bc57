"""The resource `files`: the uploaded files of a gateway."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from gateway.sdk import StoreUnavailable
from gateway.sdk.documents import DocumentReader
from gateway.sdk.files import FilesDatabase, UploadedFiles
from gateway.sdk.processes import TemporaryFolder, running_task
from gateway_files.config import FilesConfig
from gateway_files.uploads import VERSIONS, Uploads, held

logger = logging.getLogger("gateway.storage.files")

DATABASE: Final = "files.sqlite3"
"""The name of the database in the folder."""
_SWEEP_SECONDS: Final = 60.0


class Files(UploadedFiles):
    """The files of `/v1/files`, for tools and APIs that need the resource `files`."""

    def __init__(self, database: FilesDatabase, config: FilesConfig, folder: Path) -> None:
        super().__init__(database, config)
        self.folder: Final = folder
        """The folder of the files. What refers to them can be kept beside them, to last as long."""
        self.is_temporary: Final = not config.path
        """Whether the files end with this process."""
        self.uploads: Final = Uploads(self)
        """Files that are uploaded in parts."""
        self._reader = DocumentReader(
            processes=config.reading,
            seconds=config.reading_time,
            memory=config.reading_memory,
            max_text=config.max_text,
        )

    def held(self, connection: sqlite3.Connection, owner: str) -> tuple[int, int]:
        return held(connection, owner)

    async def file_text(self, owner: str, file_id: str) -> str:
        """The text of a file: a text file, an HTML page, a PDF or an Office document.

        Raises `NotFound`, and `ReadingFailure` if it has no readable text.
        """
        file = await self.get(owner, file_id)
        content = await self.read(owner, file_id, max_bytes=file.bytes)
        return await self._reader.text(content, file.filename, key=owner)

    async def close(self) -> None:
        """End the processes that read files."""
        await self._reader.close()


@asynccontextmanager
async def open_files(config: FilesConfig) -> AsyncIterator[Files]:
    """Open the files of `config`, and serve them for this event loop. Raises `ConfigurationError`."""
    async with AsyncExitStack() as stack:
        folder = Path(config.path)
        if not config.path:
            made = await asyncio.to_thread(TemporaryFolder, "gateway-files")
            folder = stack.enter_context(made)
            logger.info(
                "files are kept in a temporary folder of this process, and are gone with it; resources.files.path names "
                "a folder to keep and to share"
            )
        database = await asyncio.to_thread(
            FilesDatabase,
            folder / DATABASE,
            VERSIONS,
            name="The files",
            setting="resources.files.path",
        )
        stack.callback(database.close)
        files = Files(database, config, folder)
        stack.push_async_callback(files.close)
        stack.enter_context(files.serving())
        await stack.enter_async_context(running_task(_sweep(files)))
        yield files


async def _sweep(files: Files) -> None:
    while True:
        try:
            await files.remove_expired()
            await files.uploads.remove_expired()
        except StoreUnavailable as error:
            logger.warning("%s", error.message)
        except Exception:
            # A plugin that refers to files failed. The files are still there: the next turn tries again.
            logger.exception("files: expired files could not be removed")
        await asyncio.sleep(_SWEEP_SECONDS)
