"""/v1/vector_stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from gateway.sdk import GatewayError, Reply, Route, RouteRequest
from gateway.sdk.files import list_query
from gateway.sdk.wire import decode_body, listing
from gateway_file_search import requests, store_files, stores
from gateway_file_search.filters import filter_of
from gateway_file_search.library import VectorStoreLibrary, running_library
from gateway_file_search.objects import CompleteList, SearchResult, SearchResultText, VectorStore
from gateway_file_search.ranking import ranking_of

_POLL_MILLISECONDS = "250"
"""Default interval of the SDK's `…_and_poll` methods."""


class VectorStoresApi:
    """Implements `gateway.sdk.Api`."""

    @property
    def routes(self) -> Sequence[Route]:
        library = running_library()
        here = _Handlers(library)
        store = "/v1/vector_stores/{store:str}"
        file, batch = f"{store}/files/{{file:str}}", f"{store}/file_batches/{{batch:str}}"
        return (
            Route(method="POST", path="/v1/vector_stores", handle=here.create_store, counted=True),
            Route(method="GET", path="/v1/vector_stores", handle=here.list_stores),
            Route(method="GET", path=store, handle=here.store),
            Route(method="POST", path=store, handle=here.update_store, counted=True),
            Route(method="DELETE", path=store, handle=here.delete_store, counted=True),
            Route(method="POST", path=f"{store}/search", handle=here.search, counted=True),
            Route(method="POST", path=f"{store}/files", handle=here.add_file, counted=True),
            Route(method="GET", path=f"{store}/files", handle=here.list_store_files),
            Route(method="GET", path=file, handle=here.store_file),
            Route(method="POST", path=file, handle=here.update_store_file, counted=True),
            Route(method="DELETE", path=file, handle=here.remove_store_file, counted=True),
            Route(
                method="GET", path=f"{file}/content", handle=here.store_file_content, counted=True
            ),
            Route(method="POST", path=f"{store}/file_batches", handle=here.add_batch, counted=True),
            Route(method="GET", path=batch, handle=here.batch),
            Route(method="POST", path=f"{batch}/cancel", handle=here.cancel_batch),
            Route(method="GET", path=f"{batch}/files", handle=here.list_batch_files),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)


class _Handlers:
    """One method for each route."""

    def __init__(self, library: VectorStoreLibrary) -> None:
        self._library = library
        self._config = library.config
        self._read = library.database.read
        self._write = library.database.write

    async def create_store(self, request: RouteRequest) -> Reply:
        decoded, metadata = await decode_body(await request.body(), requests.create_store)
        wanted = requests.store_attachments(decoded)
        owner = _owner(request)
        files = await self._library.files_of(owner, wanted)

        def create(connection: sqlite3.Connection) -> VectorStore:
            row = stores.insert(connection, owner, decoded, metadata, self._config)
            store_files.attach(connection, row, wanted, files, self._config)
            return stores.get(connection, owner, row["id"])

        return await self._added(create)

    async def list_stores(self, request: RouteRequest) -> Reply:
        query = list_query(request.query)
        return await self._list(lambda c: stores.listed(c, _owner(request), query))

    async def store(self, request: RouteRequest) -> Reply:
        return Reply.json(await self._read(lambda c: stores.get(c, *_named(request, "store"))))

    async def update_store(self, request: RouteRequest) -> Reply:
        decoded, metadata = await decode_body(await request.body(), requests.update_store)
        return Reply.json(
            await self._write(
                lambda c: stores.update(c, *_named(request, "store"), decoded, metadata)
            )
        )

    async def delete_store(self, request: RouteRequest) -> Reply:
        return Reply.json(await self._write(lambda c: stores.delete(c, *_named(request, "store"))))

    async def search(self, request: RouteRequest) -> Reply:
        decoded, queries = await decode_body(await request.body(), requests.search_request)
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
                content=[SearchResultText(text=hit.text)],
            )
            for hit in hits
        ]
        return Reply.json(
            CompleteList(
                object="vector_store.search_results.page", search_query=queries, data=found
            )
        )

    async def add_file(self, request: RouteRequest) -> Reply:
        wanted = await decode_body(await request.body(), requests.add_file)
        owner, store_id = _named(request, "store")
        files = await self._library.files_of(owner, [wanted])

        def add(connection: sqlite3.Connection) -> Any:
            row = stores.find_usable(connection, owner, store_id)
            store_files.attach(connection, row, [wanted], files, self._config)
            return store_files.get(connection, owner, store_id, wanted.file_id)

        return await self._added(add)

    async def list_store_files(self, request: RouteRequest) -> Reply:
        query = requests.status_query(request.query)
        return await self._list(lambda c: store_files.listed(c, *_named(request, "store"), query))

    async def store_file(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "file")
        return Reply.json(await self._read(lambda c: store_files.get(c, *names)), _POLL)

    async def update_store_file(self, request: RouteRequest) -> Reply:
        attributes = await decode_body(await request.body(), requests.update_attributes)
        names = _in_store(request, "file")
        return Reply.json(await self._write(lambda c: store_files.update(c, *names, attributes)))

    async def remove_store_file(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "file")
        return Reply.json(await self._write(lambda c: store_files.delete(c, *names)))

    async def store_file_content(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "file")
        return Reply.json(await self._read(lambda c: store_files.text(c, *names)))

    async def add_batch(self, request: RouteRequest) -> Reply:
        wanted = await decode_body(await request.body(), requests.add_batch)
        names = _named(request, "store")
        files = await self._library.files_of(names[0], wanted)
        return await self._added(
            lambda c: store_files.insert_batch(c, *names, wanted, files, self._config)
        )

    async def batch(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "batch")
        return Reply.json(await self._read(lambda c: store_files.get_batch(c, *names)), _POLL)

    async def cancel_batch(self, request: RouteRequest) -> Reply:
        names = _in_store(request, "batch")
        return Reply.json(await self._write(lambda c: store_files.cancel_batch(c, *names)))

    async def list_batch_files(self, request: RouteRequest) -> Reply:
        query = requests.status_query(request.query)
        owner, store_id, batch_id = _in_store(request, "batch")
        return await self._list(
            lambda c: store_files.listed(c, owner, store_id, query, batch_id=batch_id)
        )

    async def _added(self, add: Callable[[sqlite3.Connection], Any]) -> Reply:
        added = await self._write(add)
        self._library.indexer.wake()
        return Reply.json(added)

    async def _list(
        self, listed: Callable[[sqlite3.Connection], tuple[Sequence[Any], bool]]
    ) -> Reply:
        objects, more = await self._read(listed)
        return Reply.json(listing(objects, has_more=more))


_POLL = {"openai-poll-after-ms": _POLL_MILLISECONDS}


def _owner(request: RouteRequest) -> str:
    return request.owner or ""


def _named(request: RouteRequest, name: str) -> tuple[str, str]:
    """The owner, and the object name in the path."""
    return _owner(request), request.path_parameters[name]


def _in_store(request: RouteRequest, name: str) -> tuple[str, str, str]:
    """The owner, the vector store, and the name of an object in it."""
    return *_named(request, "store"), request.path_parameters[name]
