"""Files that were uploaded to /v1/files, for which the plugin `file_search` is needed."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING

from gateway.errors import ConfigurationError, GatewayError, Unsupported
from gateway_container.kept.files import is_path

if TYPE_CHECKING:
    from gateway_file_search.library import Library

_IN_MEMORY = 1_048_576


def check(owner: str, file_ids: Sequence[str], param: str) -> None:
    """Raises `Unsupported` where there is no /v1/files, `NotFound` for a file that is not the owner's."""
    if not file_ids:
        return
    library = _library(param)
    for index, file_id in enumerate(file_ids):
        try:
            _row(library, owner, file_id)
        except GatewayError as error:
            error.param = param if param == "file_id" else f"{param}[{index}]"
            raise


@asynccontextmanager
async def opened(owner: str, file_id: str) -> AsyncIterator[tuple[str, IO[bytes]]]:
    """A file's name, and a copy of it. Raises as `check` does."""
    from gateway_file_search import files

    library = _library("file_id")
    row = _row(library, owner, file_id)
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as content:
        number = 0
        while data := await library.database.read(
            lambda connection, number=number: files.part(connection, row["seq"], number)  # type: ignore[misc]
        ):
            content.write(data)
            number += 1
        name = row["filename"].rpartition("/")[2]
        yield (name if is_path(name) else file_id), content


def _row(library: Library, owner: str, file_id: str) -> sqlite3.Row:
    from gateway_file_search import files

    return library.database.now(lambda connection: files.find(connection, owner, file_id))


def _library(param: str) -> Library:
    try:
        from gateway_file_search.library import library_here

        return library_here()
    except (ImportError, ConfigurationError):
        raise Unsupported(
            "This server has no uploaded files (/v1/files): [tools.file_search] is not configured. Leave "
            f"'{param}' out, and send files to /v1/containers/{{id}}/files.",
            param=param,
        ) from None
