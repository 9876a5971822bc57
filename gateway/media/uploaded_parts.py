"""Sending uploaded files to engines that take messages: their upstream server does not know the gateway's file ids."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.base.errors import InvalidRequest, NotFound, ParamPath, PayloadTooLarge
from gateway.media.encoded import format_of, too_large
from gateway.media.file_parts import content_of
from gateway.storage.files.uploaded import UploadedFiles, uploaded_files
from gateway.wire.content import AnyContent, InputFile, InputImage
from gateway.wire.items import Item

_UNKNOWN: Final = "application/octet-stream"


class UploadedParts:
    """Replaces the ids of uploaded files by their content, for the turns of one answer. Each file is read once."""

    def __init__(self, owner: str, *, files: bool, max_bytes: int, max_total_bytes: int) -> None:
        """`files`: whether the ids of documents are replaced too, not only those of images. `max_bytes` limits each
        file, `max_total_bytes` all files of the answer."""
        self._owner = owner
        self._files = files
        self._max_bytes = max_bytes
        self._left = max_total_bytes
        self._urls: dict[tuple[str, bool], tuple[str, str]] = {}
        """Names and `data:` URLs of files, by file id and whether the file is used as an image."""

    async def resolve(self, items: Sequence[Item]) -> Sequence[Item]:
        """Replace the ids of uploaded files in `items` by the content of the files. If the gateway serves no files, the
        ids belong to the upstream server and are not changed.

        Raises `InvalidRequest`, with the path of the id.
        """
        served = uploaded_files()
        if served is None:
            return items
        shown: list[Item] | None = None
        for index, item in enumerate(items):
            field, content = content_of(item)
            if not any(self._has_id(part) for part in content):
                continue
            made = [
                await self._replaced(part, ("input", index, field, at, "file_id"), served)
                for at, part in enumerate(content)
            ]
            shown = list(items) if shown is None else shown
            shown[index] = msgspec.structs.replace(item, **{field: made})
        return items if shown is None else shown

    def _has_id(self, part: AnyContent) -> bool:
        match part:
            case InputImage(file_id=str(), image_url=None):
                return True
            case InputFile(file_id=str()):
                return self._files
            case _:
                return False

    async def _replaced(
        self, part: AnyContent, param: ParamPath, served: UploadedFiles
    ) -> AnyContent:
        if not self._has_id(part):
            return part
        match part:
            case InputImage(file_id=str(file_id)):
                _, url = await self._read(file_id, param, served, image=True)
                return msgspec.structs.replace(part, file_id=None, image_url=url)
            case InputFile(file_id=str(file_id)):
                name, url = await self._read(file_id, param, served, image=False)
                return msgspec.structs.replace(
                    part, file_id=msgspec.UNSET, file_data=url, filename=part.filename or name
                )
            case _:
                return part

    async def _read(
        self, file_id: str, param: ParamPath, served: UploadedFiles, *, image: bool
    ) -> tuple[str, str]:
        """A file's name, and its content as a `data:` URL."""
        known = self._urls.get((file_id, image))
        if known is not None:
            return known
        limit = min(self._max_bytes, self._left)
        try:
            file = await served.get(self._owner, file_id)
            data = await served.read(self._owner, file_id, max_bytes=limit)
        except NotFound:
            raise InvalidRequest(
                "There is no file with this id.", param=param, code="file_not_found"
            ) from None
        except PayloadTooLarge:
            raise InvalidRequest(too_large(limit), param=param, code="file_too_large") from None
        media_type = mimetypes.guess_type(file.filename)[0] or _UNKNOWN
        if image:
            kind = format_of(data)
            if kind is None:
                raise InvalidRequest(
                    "The file is not a PNG, JPEG, WebP or GIF image. Convert it to one of these.",
                    param=param,
                    code="invalid_image_format",
                )
            media_type = f"image/{kind.lower()}"
        self._left -= len(data)
        encoded = await asyncio.to_thread(base64.b64encode, data)
        found = file.filename, f"data:{media_type};base64,{encoded.decode()}"
        self._urls[file_id, image] = found
        return found
