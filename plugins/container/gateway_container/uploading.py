"""Files sent to a container."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

from msgspec import Struct

from gateway.sdk import InvalidRequest, RouteRequest, forms
from gateway_container.library.files import is_path

_ADVICE = "Send a form (content type 'multipart/form-data') with the part 'file', or JSON with a 'file_id'."


class ContainerUpload(Struct, frozen=True, kw_only=True):
    """An uploaded file."""

    name: str
    content: IO[bytes]


@asynccontextmanager
async def uploaded(request: RouteRequest, max_bytes: int) -> AsyncIterator[ContainerUpload]:
    """The part `file` of a form. Raises `GatewayError` if the form is invalid."""
    async with forms.uploaded(request, max_bytes, advice=_ADVICE) as form:
        if not is_path(form.filename):
            raise InvalidRequest(
                "The part 'file' of the form has no filename that a file can have: printable, and up to 255 bytes.",
                param="file",
                code="invalid_value",
            )
        yield ContainerUpload(name=form.filename, content=form.content)
