"""The form of an upload to `/v1/files`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, Final

from msgspec import Struct

from gateway.base.errors import InvalidRequest
from gateway.plugins.protocols import RouteRequest
from gateway.storage import forms
from gateway.wire.field_errors import missing, not_among

PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
"""The allowed values of `purpose`."""
_ADVICE: Final = "Send the file as a form: content type 'multipart/form-data', with the fields 'file' and 'purpose'."
_LONGEST_NAME: Final = 255
_SECONDS: Final = 3600, 2_592_000
"""Minimum and maximum lifetime of a file in seconds, as in OpenAI's API."""


class FileUpload(Struct, frozen=True, kw_only=True):
    """An uploaded file."""

    content: IO[bytes]
    filename: str
    purpose: str
    seconds: int | None = None
    """Lifetime in seconds; None if the file does not expire."""


@asynccontextmanager
async def read_upload(request: RouteRequest, max_bytes: int) -> AsyncIterator[FileUpload]:
    """Read the file and the settings of an upload form. Raises an error if the form is invalid."""
    async with forms.uploaded(request, max_bytes, advice=_ADVICE) as form:
        filename = clean_filename(form.filename, "file")
        purpose = form.fields.get("purpose")
        if purpose is None:
            raise missing("purpose", "It is 'user_data' or 'assistants' for files to be searched.")
        if purpose not in PURPOSES:
            raise not_among("purpose", purpose, list(PURPOSES))
        yield FileUpload(
            content=form.content,
            filename=filename,
            purpose=purpose,
            seconds=_seconds(form.fields),
        )


def clean_filename(name: str, param: str) -> str:
    """The last part of a path, without control characters. Raises `InvalidRequest` about `param` if nothing is left."""
    last = name.replace("\\", "/").rpartition("/")[2]
    clean = "".join(each for each in last if each.isprintable()).strip()
    if not clean:
        raise InvalidRequest(f"'{param}' has no filename.", param=param, code="invalid_value")
    return clean[-_LONGEST_NAME:]


def _seconds(fields: Mapping[str, str]) -> int | None:
    anchor = fields.get("expires_after[anchor]")
    given = fields.get("expires_after[seconds]")
    if anchor is None and given is None:
        return None
    if anchor != "created_at":
        raise not_among(("expires_after", "anchor"), anchor or "", ["created_at"])
    least, most = _SECONDS
    given = given or ""
    if not (given.isascii() and given.isdecimal()) or not least <= int(given[:9]) <= most:
        raise InvalidRequest(
            f"Invalid 'expires_after.seconds': '{given[:100]}'. It is a number from {least} to {most}.",
            param=("expires_after", "seconds"),
            code="invalid_value",
        )
    return int(given)
