"""Running a background response again if its process died or was stopped before any output was visible."""

from __future__ import annotations

from gateway.answers.responses.answer import ResponseAnswer, prepare_response
from gateway.answers.responses.plan import Plan
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import StoredResponse
from gateway.services import Services
from gateway.wire.ids import new_id
from gateway.wire.request import decode_response_request


def keep_body(plan: Plan, body: bytes, services: Services) -> None:
    """Keep the request body of a background response, so that the response can be run again. The body is stored with
    the response if that is configured, otherwise when the response is handed over. A body that contains credentials is
    not kept."""
    if plan.background and not plan.has_credentials:
        plan.kept_body = body
        plan.body = body if services.config.server.rerun_lost else None


async def recreate_run(record: StoredResponse, services: Services) -> ResponseAnswer:
    """Prepare an answer for a stored response, with the same id. Raises `GatewayError` if it cannot be run here, for
    example because the owner's key was revoked or has expired. Authenticator plugins are not consulted, because there
    is no HTTP request."""
    assert record.request is not None, "who asks has looked"
    request = decode_response_request(record.request)
    principal = services.authenticator.owner(record.owner)
    with within(RequestContext(new_id("req_"), route="background", principal=principal)):
        run = await prepare_response(
            request, services, size=len(record.request), owner=record.owner, stored=record
        )
    keep_body(run.output.plan, record.request, services)
    return run
