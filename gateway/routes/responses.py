"""/v1/responses."""

from __future__ import annotations

from litestar import delete, get, post
from litestar.types import ASGIApp

from gateway.errors import InvalidRequest, NotFound, Unsupported
from gateway.plan import make_plan
from gateway.protocols import ResponseStore, StoredResponse
from gateway.routes.answers import EventStream, PlainAnswer, json_answer
from gateway.routes.body import read_json_body
from gateway.routes.state import HttpRequest, services_of
from gateway.run import ResponseRun
from gateway.wire.request import decode_response_request
from gateway.wire.response import DeletedResponse

TRACE_HEADERS = ("traceparent", "tracestate")


@post("/v1/responses", status_code=200)
async def create_response(request: HttpRequest) -> ASGIApp:
    """Make a response, streamed or plain."""
    services = services_of(request)
    limits = services.config.server
    body = await read_json_body(request, limit=limits.max_body_bytes, seconds=limits.body_timeout)
    decoded = decode_response_request(body)
    if decoded.unknown:
        services.metrics.unknown_parameters("/v1/responses")
    plan = await make_plan(
        decoded,
        services,
        size=len(body),
        trace_headers={k: v for k in TRACE_HEADERS if (v := request.headers.get(k))} or None,
    )
    run = ResponseRun(plan, services)
    await run.prepare()
    return EventStream(run) if plan.stream else PlainAnswer(run)


@get("/v1/responses/{response_id:str}")
async def retrieve_response(request: HttpRequest, response_id: str) -> ASGIApp:
    """A stored response."""
    if request.query_params.get("stream", "false").lower() in ("true", "1"):
        raise InvalidRequest(
            f"Response '{response_id}' was not made in the background, so it cannot be streamed. "
            "Retrieve it without stream.",
            param="stream",
        )
    store = _store(request)
    record: StoredResponse | None = await store.get(response_id)
    if record is None:
        raise _unknown(response_id)
    return json_answer(record.response)


@delete("/v1/responses/{response_id:str}", status_code=200)
async def delete_response(request: HttpRequest, response_id: str) -> ASGIApp:
    """Forget a stored response."""
    if not await _store(request).delete(response_id):
        raise _unknown(response_id)
    return json_answer(DeletedResponse(id=response_id))


def _store(request: HttpRequest) -> ResponseStore:
    store = services_of(request).store
    if store is None:
        raise Unsupported('This server stores no responses (store = "none").')
    return store


def _unknown(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id}' not found.", code="response_not_found")
