"""Files that were uploaded to /v1/files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import IO

from gateway.sdk import GatewayError, ParamPath, Unsupported, param_text
from gateway.sdk.files import UploadedFiles, uploaded_files
from gateway_container.library.files import is_path


def check(owner: str, file_ids: Sequence[str], param: ParamPath) -> None:
    """Raises `Unsupported` if there is no /v1/files, `NotFound` for a file of another owner."""
    if not file_ids:
        return
    served = _served(param)
    for index, file_id in enumerate(file_ids):
        try:
            served.check(owner, file_id)
        except GatewayError as error:
            error.at = (*param, index)
            raise


@asynccontextmanager
async def opened(owner: str, file_id: str) -> AsyncIterator[tuple[str, IO[bytes]]]:
    """A file's name and a copy of its content. Raises as `check` does."""
    async with _served(("file_id",)).copied(owner, file_id) as (filename, content):
        name = filename.rpartition("/")[2]
        yield (name if is_path(name) else file_id), content


def _served(param: ParamPath) -> UploadedFiles:
    served = uploaded_files()
    if served is None:
        raise Unsupported(
            "This server has no uploaded files (/v1/files): [resources.files] is not configured. Leave "
            f"'{param_text(param)}' out, and send files to /v1/containers/{{id}}/files.",
            param=param,
        )
    return served
