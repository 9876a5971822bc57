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
from gateway.wire.decoding import missing, not_among
from gateway_file_search.requests import PURPOSES

_IN_MEMORY: Final = 1_048_576
_MARGIN: Final = 65_536
"""Bytes that a form may have beside the file."""
_LONGEST_FIELD: Final = 4096
_LONGEST_NAME: Final = 255
_MOST_FIELDS: Final = 16
_SECONDS = 3600, 2_592_000
"""How long a file may be asked to live: OpenAI's limits."""


class UnsupportedForm(GatewayError):
    """The body is no form: 415."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class Upload(Struct, frozen=True, kw_only=True):
    """A file that was sent."""

    content: IO[bytes]
    filename: str
    purpose: str
    seconds: int | None
    """How long it shall be kept; None: for good."""


@asynccontextmanager
async def uploaded(request: RouteRequest, max_bytes: int) -> AsyncIterator[Upload]:
    """The file of a form; small ones are in memory, larger ones in a temporary file. Raises what is wrong with it."""
    boundary = _boundary(request.headers.get("content-type", ""))
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as content:
        name, fields = await _read(request, boundary, content, max_bytes)
        purpose = fields.get("purpose")
        if purpose is None:
            raise missing("purpose", "It is 'user_data' or 'assistants' for files to be searched.")
        if purpose not in PURPOSES:
            raise not_among("purpose", purpose, list(PURPOSES))
        yield Upload(
            content=content,
            filename=name,
            purpose=purpose,
            seconds=_seconds(fields),
        )


def _boundary(content_type: str) -> str:
    from multipart import parse_options_header  # type: ignore[import-untyped]

    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise UnsupportedForm(
            "Send the file as a form: content type 'multipart/form-data', with the fields 'file' and 'purpose'."
        )
    boundary: str = options.get("boundary", "")
    if not 1 <= len(boundary) <= 200:
        raise InvalidRequest("The content type 'multipart/form-data' has no boundary.")
    return boundary


async def _read(
    request: RouteRequest, boundary: str, content: Any, max_bytes: int
) -> tuple[str, dict[str, str]]:
    """The file's name and the other fields; its content is written to `content`."""
    from multipart import MultipartError, MultipartSegment, PushMultipartParser

    fields: dict[str, str] = {}
    filename: str | None = None
    field = ""
    text = bytearray()
    size = 0
    try:
        async with aclosing(request.stream(max_bytes + _MARGIN)) as body:
            with PushMultipartParser(boundary, max_segment_count=_MOST_FIELDS) as parser:
                async for received in body:
                    for piece in parser.parse(received):
                        if isinstance(piece, MultipartSegment):
                            field, text = piece.name, bytearray()
                            if field == "file":
                                filename = _clean_name(piece.filename)
                                size = 0
                                content.seek(0)
                                content.truncate()
                        elif not piece:
                            if field != "file":
                                fields[field] = text.decode("utf-8", "replace")
                        elif field == "file":
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
    if filename is None:
        raise missing("file", "Send it as a part of the form that has a filename.")
    return filename, fields


def _clean_name(name: str | None) -> str:
    """The last part of a path, without control characters."""
    last = (name or "").replace("\\", "/").rpartition("/")[2]
    clean = "".join(each for each in last if each.isprintable()).strip()
    if not clean:
        raise InvalidRequest(
            "The part 'file' of the form has no filename.", param="file", code="invalid_value"
        )
    return clean[-_LONGEST_NAME:]


def _seconds(fields: dict[str, str]) -> int | None:
    anchor = fields.get("expires_after[anchor]")
    given = fields.get("expires_after[seconds]")
    if anchor is None and given is None:
        return None
    if anchor != "created_at":
        raise not_among("expires_after.anchor", anchor or "", ["created_at"])
    least, most = _SECONDS
    given = given or ""
    if not (given.isascii() and given.isdecimal()) or not least <= int(given[:9]) <= most:
        raise InvalidRequest(
            f"Invalid 'expires_after.seconds': '{given[:100]}'. It is a number from {least} to {most}.",
            param="expires_after.seconds",
            code="invalid_value",
        )
    return int(given)
