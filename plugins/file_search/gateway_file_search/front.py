"""/v1/files and /v1/vector_stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from gateway.errors import GatewayError
from gateway.protocols import AsgiApp, Reply, Route, RouteRequest
from gateway.wire.common import Value, encode
from gateway_file_search import files, requests, store_files, stores
from gateway_file_search.filters import filter_of
from gateway_file_search.forms import uploaded
from gateway_file_search.library import Library, library_here
from gateway_file_search.objects import Page, SearchResult, Text, VectorStore, listing
from gateway_file_search.ranking import ranking_of

_MOST_FILES_LISTED = 10_000
_POLL_MILLISECONDS = "250"
"""How soon the SDK's `…_and_poll` asks again, if the client does not say."""


class ErrorObject(Value, frozen=True, kw_only=True):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Value, frozen=True, kw_only=True):
    error: ErrorObject


class FilesFront:
    """Satisfies `gateway.protocols.Front`."""

    @property
    def routes(self) -> Sequence[Route]:
        here = _Handlers(library_here())
        store = "/v1/vector_stores/{store:str}"
        file, batch = f"{store}/files/{{file:str}}", f"{store}/file_batches/{{batch:str}}"
        return (
            Route(method="POST", path="/v1/files", handle=here.upload),
            Route(method="GET", path="/v1/files", handle=here.list_files),
            Route(method="GET", path="/v1/files/{file:str}", handle=here.file),
            Route(method="DELETE", path="/v1/files/{file:str}", handle=here.delete_file),
            Route(method="GET", path="/v1/files/{file:str}/content", handle=here.content),
            Route(method="POST", path="/v1/vector_stores", handle=here.create_store),
            Route(method="GET", path="/v1/vector_stores", handle=here.list_stores),
            Route(method="GET", path=store, handle=here.store),
            Route(method="POST", path=store, handle=here.update_store),
            Route(method="DELETE", path=store, handle=here.delete_store),
            Route(method="POST", path=f"{store}/search", handle=here.search),
            Route(method="POST", path=f"{store}/files", handle=here.add_file),
            Route(method="GET", path=f"{store}/files", handle=here.list_store_files),
            Route(method="GET", path=file, handle=here.store_file),
            Route(method="POST", path=file, handle=here.update_store_file),
            Route(method="DELETE", path=file, handle=here.remove_store_file),
            Route(method="GET", path=f"{file}/content", handle=here.store_file_content),
            Route(method="POST", path=f"{store}/file_batches", handle=here.add_batch),
            Route(method="GET", path=batch, handle=here.batch),
            Route(method="POST", path=f"{batch}/cancel", handle=here.cancel_batch),
            Route(method="GET", path=f"{batch}/files", handle=here.list_batch_files),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        told = ErrorObject(
            message=error.message, type=error.type, param=error.param, code=error.code
        )
        return Reply(status=error.status, body=encode(ErrorBody(error=told)), headers=error.headers)


class _Handlers:
    """One method for each route."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._config = library.config
        self._read = library.database.snapshot
        self._write = library.database.write

    # Files.

    async def upload(self, request: RouteRequest) -> Reply:
        async with uploaded(request, self._config.max_file_bytes) as sent:
            kept = await self._write(
                lambda connection: files.insert(
                    connection,
                    _owner(request),
                    sent.content,
                    filename=sent.filename,
                    purpose=sent.purpose,
                    seconds=sent.seconds,
                    config=self._config,
                )
            )
        return _json(kept)

    async def list_files(self, request: RouteRequest) -> Reply:
        query = requests.list_query(
            request.query, chosen="purpose", most=_MOST_FILES_LISTED, limit=_MOST_FILES_LISTED
        )
        return await self._list(lambda c: files.listed(c, _owner(request), query))

    async def file(self, request: RouteRequest) -> Reply:
        return _json(await self._read(lambda c: files.get(c, *_named(request, "file"))))

    async def delete_file(self, request: RouteRequest) -> Reply:
        return _json(await self._write(lambda c: files.delete(c, *_named(request, "file"))))

    async def content(self, request: RouteRequest) -> AsgiApp:
        row = await self._read(lambda c: files.find(c, *_named(request, "file")))
        return FileContent(self._library, row)

    # Vector stores.

    async def create_store(self, request: RouteRequest) -> Reply:
        decoded, metadata = requests.create_store(await request.body())
        wanted = requests.store_attachments(decoded)
        owner = _owner(request)

        def create(connection: sqlite3.Connection) -> VectorStore:
            row = stores.insert(connection, owner, decoded, metadata, self._config)
            store_files.attach(connection, owner, row, wanted, self._config)
            return stores.get(connection, owner, row["id"])

        return await self._added(create)

    async def list_stores(self, request: RouteRequest) -> Reply:
        query = requests.list_query(request.query, chosen="")
        return await self._list(lambda c: stores.listed(c, _owner(request), query))

    async def store(self, request: RouteRequest) -> Reply:
        return _json(await self._read(lambda c: stores.get(c, *_named(request, "store"))))

    async def update_store(self, request: RouteRequest) -> Reply:
        decoded, metadata = requests.update_store(await request.body())
        return _json(
            await self._write(
                lambda c: stores.update(c, *_named(request, "store"), decoded, metadata)
            )
        )

    async def delete_store(self, request: RouteRequest) -> Reply:
        return _json(await self._write(lambda c: stores.delete(c, *_named(request, "store"))))

    async def search(self, request: RouteRequest) -> Reply:
        decoded, queries = requests.search_request(await request.body())
        owner, store_id = _named(request, "store")
        hits = await self._library.search(
            owner,
            [store_id],
            queries,
            wanted=filter_of(decoded.filters) if decoded.filters is not None else None,
            limit=decoded.max_num_results,
            ranking=ranking_of(decoded.ranking_options),
        )
        found = [
            SearchResult(
                file_id=hit.file_id,
                filename=hit.filename,
                score=hit.score,
                attributes=hit.attributes,
                content=[Text(text=hit.text)],
            )
            for hit in hits
        ]
        return _json(
            Page(object="vector_store.search_results.page", search_query=queries, data=found)
        )

    # Their files.

    async def add_file(self, request: RouteRequest) -> Reply:
        wanted = requests.add_file(await request.body())
        owner, store_id = _named(request, "store")

        def add(connection: sqlite3.Connection) -> Any:
            row = stores.find_usable(connection, owner, store_id)
            store_files.attach(connection, owner, row, [wanted], self._config)
            return store_files.get(connection, owner, store_id, wanted.file_id)

        return await self._added(add)

    async def list_store_files(self, request: RouteRequest) -> Reply:
        query = requests.status_query(request.query)
        return await self._list(lambda c: store_files.listed(c, *_named(request, "store"), query))

    async def store_file(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "file")
        return _json(await self._read(lambda c: store_files.get(c, *names)), _POLL)

    async def update_store_file(self, request: RouteRequest) -> Reply:
        attributes = requests.update_attributes(await request.body())
        names = _in_store(request, "file")
        return _json(await self._write(lambda c: store_files.update(c, *names, attributes)))

    async def remove_store_file(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "file")
        return _json(await self._write(lambda c: store_files.delete(c, *names)))

    async def store_file_content(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "file")
        return _json(await self._read(lambda c: store_files.text(c, *names)))

    # Batches of them.

    async def add_batch(self, request: RouteRequest) -> Reply:
        wanted = requests.add_batch(await request.body())
        names = _named(request, "store")
        return await self._added(
            lambda c: store_files.insert_batch(c, *names, wanted, self._config)
        )

    async def batch(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "batch")
        return _json(await self._read(lambda c: store_files.get_batch(c, *names)), _POLL)

    async def cancel_batch(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "batch")
        return _json(await self._write(lambda c: store_files.cancel_batch(c, *names)))

    async def list_batch_files(self, request: RouteRequest) -> Reply:
        query = requests.status_query(request.query)
        owner, store_id, batch_id = _in_store(request, "batch")
        return await self._list(
            lambda c: store_files.listed(c, owner, store_id, query, batch_id=batch_id)
        )

    async def _added(self, add: Callable[[sqlite3.Connection], Any]) -> Reply:
        added = await self._write(add)
        self._library.indexer.wake()
        return _json(added)

    async def _list(
        self, listed: Callable[[sqlite3.Connection], tuple[Sequence[Any], bool]]
    ) -> Reply:
        objects, more = await self._read(listed)
        return _json(listing(objects, has_more=more))


class FileContent:
    """A file's bytes, as an ASGI application that has a part of them in memory."""

    def __init__(self, library: Library, row: sqlite3.Row) -> None:
        self._library = library
        self._row = row

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        row = self._row
        # Never shown as a page of this server's: somebody's HTML would run with its rights.
        headers = {
            "content-type": "application/octet-stream",
            "content-length": str(row["bytes"]),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(row['filename'], safe='')}",
            "x-content-type-options": "nosniff",
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        for number in range(-(-row["bytes"] // files.PART)):
            part = await self._library.database.read(
                lambda c, number=number: files.part(c, row["seq"], number)  # type: ignore[misc]
            )
            if not part:
                raise OSError("the file was deleted while it was sent")
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


_POLL = {"openai-poll-after-ms": _POLL_MILLISECONDS}


def _owner(request: RouteRequest) -> str:
    return request.owner or ""


def _named(request: RouteRequest, name: str) -> tuple[str, str]:
    """The owner, and the name in the path."""
    return _owner(request), request.path_parameters[name]


def _in_store(request: RouteRequest, name: str) -> tuple[str, str, str]:
    """The owner, the vector store, and the name of what is in it."""
    return *_named(request, "store"), request.path_parameters[name]


def _json(body: object, headers: dict[str, str] | None = None) -> Reply:
    return Reply(body=encode(body), headers=headers or {})
