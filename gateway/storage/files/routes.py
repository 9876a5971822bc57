"""The routes of `/v1/files`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.plugins.protocols import AsgiApp, Reply, Route, RouteRequest
from gateway.storage.files.form import read_upload
from gateway.storage.files.lists import list_query
from gateway.storage.files.uploaded import UploadedFiles
from gateway.wire.listing import listing

_MAX_LISTED: Final = 10_000


class FileRoutes:
    """Creates, lists, shows, sends and deletes uploaded files."""

    def __init__(self, files: UploadedFiles) -> None:
        self._files = files

    @property
    def routes(self) -> Sequence[Route]:
        file = "/v1/files/{file:str}"
        return (
            Route(method="POST", path="/v1/files", handle=self._create, counted=True),
            Route(method="GET", path="/v1/files", handle=self._list),
            Route(method="GET", path=file, handle=self._get),
            Route(method="DELETE", path=file, handle=self._delete, counted=True),
            Route(method="GET", path=f"{file}/content", handle=self._content),
        )

    async def _create(self, request: RouteRequest) -> Reply:
        """Upload a file, as a form with `file` and `purpose`."""
        async with read_upload(request, self._files.limits.max_file_bytes) as upload:
            return Reply.json(await self._files.add(request.owner or "", upload))

    async def _list(self, request: RouteRequest) -> Reply:
        """List a page of the files, newest first."""
        query = list_query(request.query, chosen="purpose", most=_MAX_LISTED, limit=_MAX_LISTED)
        found, more = await self._files.list(request.owner or "", query)
        return Reply.json(listing(found, has_more=more))

    async def _get(self, request: RouteRequest) -> Reply:
        """Retrieve a file's description."""
        return Reply.json(await self._files.get(*_file(request)))

    async def _delete(self, request: RouteRequest) -> Reply:
        """Delete a file."""
        return Reply.json(await self._files.delete(*_file(request)))

    async def _content(self, request: RouteRequest) -> AsgiApp:
        """Download a file's content."""
        return await self._files.download(*_file(request))


def _file(request: RouteRequest) -> tuple[str, str]:
    return request.owner or "", request.path_parameters["file"]
