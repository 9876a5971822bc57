"""The tool keeps what every tool server promises."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest

from gateway.plugins.protocols import ToolServer
from gateway.storage.files.form import FileUpload
from gateway.wire.tools import FileSearchTool
from gateway_file_search import store_files, stores
from gateway_file_search.config import FileSearchConfig
from gateway_file_search.library import running_library
from gateway_file_search.plugin import open_file_search
from gateway_file_search.requests import DEFAULT_SIZES, Attachment, CreateStore
from gateway_files.config import FilesConfig
from gateway_files.files import open_files
from gateway_testing import ToolServerContract


class TestFileSearch(ToolServerContract):
    good_call = ("file_search", {"queries": ["tower"]})

    @pytest.fixture
    async def tool_server(self) -> AsyncIterator[ToolServer]:
        config = FileSearchConfig()
        async with (
            open_files(FilesConfig()) as files,
            open_file_search(config, files=files) as server,
        ):
            library = running_library()
            upload = FileUpload(
                content=io.BytesIO(b"A tower."), filename="a.txt", purpose="user_data"
            )
            file = await files.add("", upload)

            def fill(connection: object) -> str:
                row = stores.insert(connection, "", CreateStore(), {}, config)  # type: ignore[arg-type]
                wanted = Attachment(
                    file_id=file.id, param="file_id", attributes={}, sizes=DEFAULT_SIZES
                )
                store_files.attach(connection, row, [wanted], {file.id: file}, config)  # type: ignore[arg-type]
                return str(row["id"])

            store_id = await library.database.write(fill)
            library.indexer.wake()
            async with asyncio.timeout(60):
                status = "in_progress"
                while status == "in_progress":
                    await asyncio.sleep(0.02)
                    found = await library.database.read(lambda c: stores.get(c, "", store_id))
                    status = found.status
            TestFileSearch.entry = FileSearchTool(vector_store_ids=[store_id])
            yield server
