"""Reading a form with a file, as it arrives."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import IO, Any, Final

from msgspec import Struct

from gateway.errors import GatewayError, InvalidRequest, PayloadTooLarge
from gateway.protocols import RouteRequest
from gateway.wire.decoding import missing
from gateway_container.kept.files import is_path

_IN_MEMORY: Final = 1_048_576
_MARGIN: Final = 65_536
"""Bytes that a form may have beside the file."""
_MOST_FIELDS: Final = 16


class UnsupportedForm(GatewayError):
    """The body is neither a form nor JSON: 415."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class Upload(Struct, frozen=True, kw_only=True):
    """A file that was sent."""

    name: str
    content: IO[bytes]


@asynccontextmanager
async def uploaded(request: RouteRequest, max_bytes: int) -> AsyncIterator[Upload]:
    """The part `file` of a form; small ones are in memory, larger ones on disk. Raises what is wrong with it."""
    boundary = _boundary(request.headers.get("content-type", ""))
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as content:
        yield Upload(name=await _read(request, boundary, content, max_bytes), content=content)


def _boundary(content_type: str) -> str:
    from multipart import parse_options_header  # type: ignore[import-untyped]

    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise UnsupportedForm(
            "Send a form (content type 'multipart/form-data') with the part 'file', or JSON with a 'file_id'."
        )
    boundary: str = options.get("boundary", "")
    if not 1 <= len(boundary) <= 200:
        raise InvalidRequest("The content type 'multipart/form-data' has no boundary.")
    return boundary


async def _read(request: RouteRequest, boundary: str, content: Any, max_bytes: int) -> str:
    """The file's name; its content is written to `content`. Other parts are passed over."""
    from multipart import MultipartError, MultipartSegment, PushMultipartParser

    name: str | None = None
    field, size = "", 0
    try:
        async with aclosing(request.stream(max_bytes + _MARGIN)) as body:
            with PushMultipartParser(boundary, max_segment_count=_MOST_FIELDS) as parser:
                async for received in body:
                    for piece in parser.parse(received):
                        if isinstance(piece, MultipartSegment):
                            field = piece.name
                            if field == "file":
                                name, size = _name(piece.filename), 0
                                content.seek(0)
                                content.truncate()
                        elif piece and field == "file":
                            size += len(piece)
                            if size > max_bytes:
                                raise PayloadTooLarge(
                                    f"The file is larger than this server's limit of {max_bytes} bytes.",
                                    param="file",
                                )
                            if size > _IN_MEMORY:
                                await asyncio.to_thread(content.write, bytes(piece))
                            else:
                                content.write(piece)
    except MultipartError as error:
        raise InvalidRequest(
            f"The form cannot be read: {error}.", code="invalid_multipart"
        ) from None
    if name is None:
        raise missing("file", "Send it as a part of the form that has a filename, or a 'file_id'.")
    return name


def _name(sent: str | None) -> str:
    """The last part of a path."""
    name = (sent or "").replace("\\", "/").rpartition("/")[2].strip()
    if not is_path(name):
        raise InvalidRequest(
            "The part 'file' of the form has no filename that a file can have: printable, and up to 255 bytes.",
            param="file",
            code="invalid_value",
        )
    return name
