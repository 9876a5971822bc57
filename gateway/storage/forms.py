"""Streaming multipart forms with a file, for APIs that accept uploads.

Requires the package `multipart`: a plugin that reads forms depends on `litegate[forms]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import IO, Any, Final

from msgspec import Struct

from gateway.base.errors import InvalidRequest, PayloadTooLarge, UnsupportedMediaType
from gateway.base.temporary_files import temporary_file
from gateway.plugins.protocols import RouteRequest
from gateway.wire.field_errors import missing

_IN_MEMORY: Final = 1_048_576
_MARGIN: Final = 65_536
"""Maximum size of a form without the file, in bytes."""
_LONGEST_FIELD: Final = 4096
_MAX_FIELDS: Final = 16


class UnsupportedForm(UnsupportedMediaType):
    """The body is not a form: 415."""


class Form(Struct, frozen=True, kw_only=True):
    """A parsed form."""

    content: IO[bytes]
    """The part with the file. Small files are in memory, larger ones in a temporary file."""
    filename: str
    """The file name sent by the client, without folders. It may be empty, or not be a valid file name."""
    fields: Mapping[str, str]
    """The other parts, up to 4096 bytes each."""


@asynccontextmanager
async def uploaded(
    request: RouteRequest, max_bytes: int, *, advice: str, part: str = "file"
) -> AsyncIterator[Form]:
    """Parse the form in a request's body, with a file of up to `max_bytes` in the part named `part`.

    Raises `UnsupportedForm` with the message `advice` if the body is not a form, and another `GatewayError` if the form
    is invalid.
    """
    boundary = _boundary(request.headers.get("content-type", ""), advice)
    with temporary_file(_IN_MEMORY) as content:
        filename, fields = await _read(request, boundary, content, max_bytes, part)
        content.flush()
        if filename is None:
            raise missing(part, "Send it as a part of the form that has a filename.")
        name = filename.replace("\\", "/").rpartition("/")[2].strip()
        yield Form(content=content, filename=name, fields=fields)


def _boundary(content_type: str, advice: str) -> str:
    from multipart import parse_options_header  # type: ignore[import-untyped]

    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise UnsupportedForm(advice)
    boundary: str = options.get("boundary", "")
    if not 1 <= len(boundary) <= 200:
        raise InvalidRequest("The content type 'multipart/form-data' has no boundary.")
    return boundary


async def _read(
    request: RouteRequest, boundary: str, content: Any, max_bytes: int, part: str
) -> tuple[str | None, dict[str, str]]:
    """Write the file to `content`. Returns the file's name, or None if there is no file, and the other fields."""
    from multipart import MultipartError, MultipartSegment, PushMultipartParser

    fields: dict[str, str] = {}
    filename: str | None = None
    field, text, size = "", bytearray(), 0
    try:
        async with aclosing(request.stream(max_bytes + _MARGIN)) as body:
            with PushMultipartParser(boundary, max_segment_count=_MAX_FIELDS) as parser:
                async for received in body:
                    for piece in parser.parse(received):
                        if isinstance(piece, MultipartSegment):
                            field, text = piece.name, bytearray()
                            if field in fields or (field == part and filename is not None):
                                raise InvalidRequest(
                                    f"The form has more than one part '{field[:100]}'. Send one.",
                                    param=field[:100],
                                    code="duplicate_parameter",
                                )
                            if field == part:
                                filename, size = piece.filename or "", 0
                        elif not piece:
                            if field != part:
                                fields[field] = text.decode("utf-8", "replace")
                        elif field == part:
                            size += len(piece)
                            if size > max_bytes:
                                raise PayloadTooLarge(
                                    f"The file is larger than this server's limit of {max_bytes} bytes.",
                                    param=part,
                                )
                            if size > _IN_MEMORY:
                                await asyncio.to_thread(content.write, bytes(piece))
                            else:
                                content.write(piece)
                        else:
                            text += piece
                            if len(text) > _LONGEST_FIELD:
                                raise InvalidRequest(
                                    f"The field '{field[:100]}' is too long.", param=field[:100]
                                )
    except MultipartError as error:
        raise InvalidRequest(
            f"The form cannot be read: {error}.", code="invalid_multipart"
        ) from None
    return filename, fields
