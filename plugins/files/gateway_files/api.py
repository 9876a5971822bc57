"""/v1/files and /v1/uploads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from gateway.sdk import GatewayError, PayloadTooLarge, Reply, Route, RouteRequest, forms
from gateway.sdk.files import FileRoutes
from gateway.sdk.wire import Value, convert, decode_body, decode_object
from gateway_files.files import Files
from gateway_files.uploads import CompleteUpload, CreateUpload, Upload, UploadPart

V = TypeVar("V", bound=Value)

_ADVICE: Final = "Send the part as a form: content type 'multipart/form-data', with the field 'data', which has a filename."


class FilesApi(FileRoutes):
    """Implements `gateway.sdk.Api`."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._uploads = files.uploads

    @property
    def routes(self) -> Sequence[Route]:
        path, upload = "/v1/uploads", "/v1/uploads/{upload:str}"
        return (
            *super().routes,
            Route(
                method="POST",
                path=path,
                handle=self._begin,
                counted=True,
                takes=CreateUpload,
                answers=Upload,
            ),
            Route(
                method="POST",
                path=f"{upload}/parts",
                handle=self._add,
                counted=True,
                answers=UploadPart,
            ),
            Route(
                method="POST",
                path=f"{upload}/complete",
                handle=self._complete,
                counted=True,
                takes=CompleteUpload,
                answers=Upload,
            ),
            Route(method="POST", path=f"{upload}/cancel", handle=self._cancel, answers=Upload),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)

    async def _begin(self, request: RouteRequest) -> Reply:
        """Begin to upload a file in parts."""
        asked = await _decoded(request, CreateUpload)
        return Reply.json(await self._uploads.create(request.owner or "", asked))

    async def _add(self, request: RouteRequest) -> Reply:
        """Add a part to an upload, as a form with `data`."""
        owner, upload = _upload(request)
        room = await self._uploads.room(owner, upload)
        try:
            async with forms.uploaded(request, room, advice=_ADVICE, part="data") as form:
                return Reply.json(await self._uploads.add(owner, upload, form.content))
        except PayloadTooLarge:
            raise PayloadTooLarge(
                f"The next part of this upload can have at most {room} bytes.",
                param="data",
                code="part_too_large",
            ) from None

    async def _complete(self, request: RouteRequest) -> Reply:
        """Make a file of the parts of an upload."""
        asked = await _decoded(request, CompleteUpload)
        return Reply.json(await self._uploads.complete(*_upload(request), asked))

    async def _cancel(self, request: RouteRequest) -> Reply:
        """End an upload and delete its parts."""
        return Reply.json(await self._uploads.cancel(*_upload(request)))


async def _decoded(request: RouteRequest, kind: type[V]) -> V:
    raw = await decode_body(await request.body(), decode_object)
    asked = convert(raw, kind)
    request.note_unknown(sorted(set(raw) - set(kind.__struct_fields__)))
    return asked


def _upload(request: RouteRequest) -> tuple[str, str]:
    return request.owner or "", request.path_parameters["upload"]
