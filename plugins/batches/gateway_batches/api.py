"""/v1/batches."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import (
    GatewayError,
    GatewayServices,
    InvalidRequest,
    Reply,
    Route,
    RouteRequest,
    StoreUnavailable,
)
from gateway.sdk.files import UploadedFiles, list_query, no_such_file
from gateway.sdk.wire import Listing, decode_body, listing
from gateway_batches import batches
from gateway_batches.config import BatchesConfig
from gateway_batches.database import BatchDatabase
from gateway_batches.objects import Batch
from gateway_batches.requests import CreateBatch, create_batch, window_seconds
from gateway_batches.runner import Runner


class BatchesApi:
    """Implements `gateway.sdk.Api` and `gateway.sdk.ServicesUser`."""

    def __init__(
        self, database: BatchDatabase, files: UploadedFiles, runner: Runner, config: BatchesConfig
    ) -> None:
        self._database = database
        self._files = files
        self._runner = runner
        self._config = config
        self._services: GatewayServices | None = None

    def use(self, services: GatewayServices) -> None:
        self._services = services
        self._runner.use(services)

    @property
    def routes(self) -> Sequence[Route]:
        path = "/v1/batches"
        batch = f"{path}/{{batch:str}}"
        return (
            Route(
                method="POST",
                path=path,
                handle=self._create,
                counted=True,
                takes=CreateBatch,
                answers=Batch,
            ),
            Route(method="GET", path=path, handle=self._list, answers=Listing),
            Route(method="GET", path=batch, handle=self._get, answers=Batch),
            Route(method="POST", path=f"{batch}/cancel", handle=self._cancel, answers=Batch),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)

    async def _create(self, request: RouteRequest) -> Reply:
        """Create a batch of the requests in an uploaded file, which has one request a line and the purpose `batch`."""
        decoded, metadata, unknown = await decode_body(await request.body(), create_batch)
        request.note_unknown(unknown)
        seconds = window_seconds(decoded.completion_window)
        owner = request.owner or ""
        found = await self._files.find(owner, [decoded.input_file_id])
        file = found.get(decoded.input_file_id)
        if file is None:
            raise no_such_file(decoded.input_file_id, "input_file_id")
        if file.purpose != "batch":
            raise InvalidRequest(
                f"The file '{file.id}' has the purpose '{file.purpose}'. Upload it with the purpose 'batch'.",
                param="input_file_id",
                code="invalid_file_purpose",
            )
        if self._services is None:
            raise StoreUnavailable("The server is starting. Retry.")
        await self._files.check_room(owner)  # the files of its results count afterwards, too
        delegation = self._services.delegation()
        most = self._config.max_active
        made = await self._database.write(
            lambda c: batches.insert(
                c, owner, delegation, decoded, metadata, seconds=seconds, max_active=most
            )
        )
        self._runner.wake()
        return Reply.json(made)

    async def _list(self, request: RouteRequest) -> Reply:
        """List a page of the batches, newest first."""
        query = list_query(request.query)
        owner = request.owner or ""
        found, more = await self._database.read(lambda c: batches.listed(c, owner, query))
        return Reply.json(listing(found, has_more=more))

    async def _get(self, request: RouteRequest) -> Reply:
        """Retrieve a batch."""
        owner, batch_id = _batch(request)
        return Reply.json(
            await self._database.read(
                lambda c: batches.batch_object(batches.find(c, owner, batch_id))
            )
        )

    async def _cancel(self, request: RouteRequest) -> Reply:
        """Cancel a batch. Its files have what was done."""
        owner, batch_id = _batch(request)
        changed = await self._database.write(lambda c: batches.request_cancel(c, owner, batch_id))
        self._runner.wake()
        return Reply.json(changed)


def _batch(request: RouteRequest) -> tuple[str, str]:
    return request.owner or "", request.path_parameters["batch"]
