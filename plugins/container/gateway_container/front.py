"""/v1/containers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols import AsgiApp, Reply, Route, RouteRequest
from gateway.wire.common import JsonObject, Value, encode
from gateway.wire.decoding import convert, decode_object
from gateway_container.containers import Containers
from gateway_container.kept import files, records, uploads
from gateway_container.kept.objects import ExpiresAfter, listing
from gateway_container.requested import wished
from gateway_container.uploading import uploaded


class ErrorObject(Value, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Value, frozen=True, kw_only=True):
    error: ErrorObject


class CreateContainer(Value, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=256)]
    expires_after: ExpiresAfter | None = None
    file_ids: list[str] | None = None
    memory_limit: str | None = None
    network_policy: JsonObject | None = None
    skills: list[Any] | None = None


class CreateFile(Value, frozen=True, kw_only=True):
    file_id: str


class ContainersFront:
    """Satisfies `gateway.protocols.Front`."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self._read = containers.database.read
        self._write = containers.database.write

    @property
    def routes(self) -> Sequence[Route]:
        container = "/v1/containers/{container:str}"
        file = f"{container}/files/{{file:str}}"
        return (
            Route(method="POST", path="/v1/containers", handle=self.create),
            Route(method="GET", path="/v1/containers", handle=self.list),
            Route(method="GET", path=container, handle=self.retrieve),
            Route(method="DELETE", path=container, handle=self.delete),
            Route(method="POST", path=f"{container}/files", handle=self.add_file),
            Route(method="GET", path=f"{container}/files", handle=self.list_files),
            Route(method="GET", path=file, handle=self.file),
            Route(method="DELETE", path=file, handle=self.delete_file),
            Route(method="GET", path=f"{file}/content", handle=self.content),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        told = ErrorObject(
            message=error.message, type=error.type, param=error.param, code=error.code
        )
        return Reply(status=error.status, body=encode(ErrorBody(error=told)), headers=error.headers)

    async def create(self, request: RouteRequest) -> Reply:
        config = self._containers.config
        raw = decode_object(await request.body())
        asked = convert(raw, CreateContainer, "")
        minutes = config.expiry_minutes
        if asked.expires_after is not None:
            minutes = asked.expires_after.minutes
            if not 1 <= minutes <= config.max_expiry_minutes:
                raise InvalidRequest(
                    f"Invalid 'expires_after.minutes': {minutes}. It is a number from 1 to {config.max_expiry_minutes}.",
                    param="expires_after.minutes",
                    code="invalid_value",
                )
        wish = wished(
            raw, config, owner=request.owner, name=asked.name, minutes=minutes, made_by="user"
        )
        container = self._containers.new(request.owner, wish)
        await self._containers.make(container)
        return _json(await self._read(lambda c: records.get(c, container.owner, container.id)))

    async def list(self, request: RouteRequest) -> Reply:
        query = records.list_query(request.query)
        found, more = await self._read(lambda c: records.listed(c, _owner(request), query))
        return _json(listing(found, has_more=more))

    async def retrieve(self, request: RouteRequest) -> Reply:
        return _json(await self._read(lambda c: records.get(c, *_container(request))))

    async def delete(self, request: RouteRequest) -> Reply:
        owner, container_id = _container(request)
        return _json(await self._containers.delete(container_id, owner))

    async def add_file(self, request: RouteRequest) -> Reply:
        """A form with a file, or JSON with the id of one that was uploaded before."""
        owner, container_id = _container(request)
        config = self._containers.config
        await self._read(lambda c: records.find(c, owner, container_id))
        if request.headers.get("content-type", "").startswith("application/json"):
            asked = convert(decode_object(await request.body()), CreateFile, "")
            uploads.check(owner, [asked.file_id], "file_id")
            file_id = await self._containers.add_upload(owner, container_id, asked.file_id)
            return _json(await self._read(lambda c: files.get(c, owner, container_id, file_id)))
        async with uploaded(request, config.max_disk_bytes) as sent:
            row = await self._write(
                lambda c: files.put(
                    c, owner, container_id, sent.name, sent.content, source="user", config=config
                )
            )
        return _json(files.told(row))

    async def list_files(self, request: RouteRequest) -> Reply:
        query = records.list_query(request.query)
        found, more = await self._read(lambda c: files.listed(c, *_container(request), query))
        return _json(listing(found, has_more=more))

    async def file(self, request: RouteRequest) -> Reply:
        return _json(await self._read(lambda c: files.get(c, *_file(request))))

    async def delete_file(self, request: RouteRequest) -> Reply:
        return _json(await self._write(lambda c: files.delete(c, *_file(request))))

    async def content(self, request: RouteRequest) -> AsgiApp:
        row = await self._read(lambda c: files.row_of(c, *_file(request)))
        return FileContent(self._containers, row)


class FileContent:
    """A file's bytes, as an ASGI application that has a part of them in memory."""

    def __init__(self, containers: Containers, row: sqlite3.Row) -> None:
        self._containers = containers
        self._row = row

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        row = self._row
        name = row["path"].rpartition("/")[2]
        # Never shown as a page of this server's: a model's HTML would run with its rights.
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(row["bytes"]),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "x-content-type-options": "nosniff",
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        for number in files.parts(row["bytes"]):
            part = await self._containers.database.read(
                lambda c, number=number: files.part_of(c, row, number)  # type: ignore[misc]
            )
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _owner(request: RouteRequest) -> str:
    return request.owner or ""


def _container(request: RouteRequest) -> tuple[str, str]:
    return _owner(request), request.path_parameters["container"]


def _file(request: RouteRequest) -> tuple[str, str, str]:
    return *_container(request), request.path_parameters["file"]


def _json(body: object) -> Reply:
    return Reply(body=encode(body))
