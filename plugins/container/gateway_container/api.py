"""/v1/containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta

from gateway.sdk import (
    AsgiApp,
    GatewayError,
    InvalidRequest,
    PermissionDenied,
    Reply,
    Route,
    RouteRequest,
    renamed_params,
)
from gateway.sdk.files import Download, list_query
from gateway.sdk.wire import JsonObject, Value, convert, decode_body, decode_object, listing
from gateway_container.containers import Containers
from gateway_container.library import files, records, uploads
from gateway_container.library.objects import ExpiresAfter
from gateway_container.requested import container_settings
from gateway_container.uploading import uploaded

_TOOLS = frozenset({"container", "python"})


class CreateContainer(Value, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=256)]
    expires_after: ExpiresAfter | None = None
    file_ids: list[str] | None = None
    memory_limit: str | None = None
    network_policy: JsonObject | None = None
    skills: list[Any] | None = None


class AddedFile(Value, frozen=True, kw_only=True):
    file_id: str


class ContainersApi:
    """Implements `gateway.sdk.Api`."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self._read = containers.database.read
        self._write = containers.database.write

    @property
    def routes(self) -> Sequence[Route]:
        container = "/v1/containers/{container:str}"
        file = f"{container}/files/{{file:str}}"
        return (
            Route(method="POST", path="/v1/containers", handle=self.create, counted=True),
            Route(method="GET", path="/v1/containers", handle=self.list),
            Route(method="GET", path=container, handle=self.retrieve),
            Route(method="DELETE", path=container, handle=self.delete, counted=True),
            Route(method="POST", path=f"{container}/files", handle=self.add_file, counted=True),
            Route(method="GET", path=f"{container}/files", handle=self.list_files),
            Route(method="GET", path=file, handle=self.file),
            Route(method="DELETE", path=file, handle=self.delete_file, counted=True),
            Route(method="GET", path=f"{file}/content", handle=self.content),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)

    async def create(self, request: RouteRequest) -> Reply:
        _require_tools(request)
        config = self._containers.config
        raw = await decode_body(await request.body(), decode_object)
        asked = convert(raw, CreateContainer)
        minutes = config.expiry_minutes
        if asked.expires_after is not None:
            minutes = asked.expires_after.minutes
            if not 1 <= minutes <= config.max_expiry_minutes:
                raise InvalidRequest(
                    f"Invalid 'expires_after.minutes': {minutes}. It is a number from 1 to {config.max_expiry_minutes}.",
                    param=("expires_after", "minutes"),
                    code="invalid_value",
                )
        settings = container_settings(
            raw, config, owner=request.owner, name=asked.name, minutes=minutes, made_by="user"
        )
        container = self._containers.new(request.owner, settings)
        await self._containers.make(container)
        return Reply.json(await self._read(lambda c: records.get(c, container.owner, container.id)))

    async def list(self, request: RouteRequest) -> Reply:
        query = list_query(request.query, chosen="name")
        found, more = await self._read(lambda c: records.listed(c, _owner(request), query))
        return Reply.json(listing(found, has_more=more))

    async def retrieve(self, request: RouteRequest) -> Reply:
        return Reply.json(await self._read(lambda c: records.get(c, *_container(request))))

    async def delete(self, request: RouteRequest) -> Reply:
        owner, container_id = _container(request)
        return Reply.json(await self._containers.delete(container_id, owner))

    async def add_file(self, request: RouteRequest) -> Reply:
        """Accepts a form with a file, or JSON with the id of an uploaded file."""
        _require_tools(request)
        owner, container_id = _container(request)
        config = self._containers.config
        await self._read(lambda c: records.find(c, owner, container_id))
        if request.headers.get("content-type", "").startswith("application/json"):
            asked = convert(await decode_body(await request.body(), decode_object), AddedFile)
            with renamed_params(lambda _: ("file_id",)):
                uploads.check(owner, [asked.file_id], ("file_id",))
            file_id = await self._containers.add_upload(owner, container_id, asked.file_id)
            return Reply.json(
                await self._read(lambda c: files.get(c, owner, container_id, file_id))
            )
        async with uploaded(request, config.max_disk_bytes) as sent:
            row = await self._write(
                lambda c: files.put(
                    c, owner, container_id, sent.name, sent.content, source="user", config=config
                )
            )
        return Reply.json(files.file_object(row))

    async def list_files(self, request: RouteRequest) -> Reply:
        query = list_query(request.query)
        found, more = await self._read(lambda c: files.listed(c, *_container(request), query))
        return Reply.json(listing(found, has_more=more))

    async def file(self, request: RouteRequest) -> Reply:
        return Reply.json(await self._read(lambda c: files.get(c, *_file(request))))

    async def delete_file(self, request: RouteRequest) -> Reply:
        return Reply.json(await self._write(lambda c: files.delete(c, *_file(request))))

    async def content(self, request: RouteRequest) -> AsgiApp:
        row = await self._read(lambda c: files.row_of(c, *_file(request)))
        return Download(
            self._containers.database,
            lambda c, number: files.part(c, row, number),
            filename=row["path"].rpartition("/")[2],
            size=row["bytes"],
        )


def _require_tools(request: RouteRequest) -> None:
    """Raise `PermissionDenied` for a key that may use none of the tools for which containers are."""
    principal = request.principal
    if principal is None or principal.tools is None or _TOOLS & {*principal.tools}:
        return
    raise PermissionDenied(
        f"The API key '{principal.name}' may not use containers: its tools have neither 'container' nor 'python'."
    )


def _owner(request: RouteRequest) -> str:
    return request.owner or ""


def _container(request: RouteRequest) -> tuple[str, str]:
    return _owner(request), request.path_parameters["container"]


def _file(request: RouteRequest) -> tuple[str, str, str]:
    return *_container(request), request.path_parameters["file"]
