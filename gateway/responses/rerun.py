"""Running a background response whose process died before anybody had seen any output."""

from __future__ import annotations

from gateway.protocols import StoredResponse
from gateway.responses.plan import Plan, make_plan
from gateway.responses.run import ResponseRun
from gateway.serving.served import Services
from gateway.tools.requested import items_without_credentials, without_credentials
from gateway.wire.request import ResponseRequest, decode_response_request


def body_to_keep(
    plan: Plan, request: ResponseRequest, body: bytes, services: Services
) -> bytes | None:
    """The body of a request that may have to be run again, to be stored with its response.

    None where the configuration does not ask for it, and for requests with credentials in them, which are not stored.
    """
    if not (plan.background and services.config.server.rerun_lost):
        return None
    tools, items = request.tools or [], request.input or []
    secret = without_credentials(tools) != tools or items_without_credentials(items) != items
    return None if secret else body


async def made_again(record: StoredResponse, services: Services) -> ResponseRun:
    """A prepared run that makes the stored response, under its own id. Raises `GatewayError` where it cannot be made here."""
    assert record.request is not None, "who asks has looked"
    request = decode_response_request(record.request)
    plan = await make_plan(request, services, size=len(record.request), owner=record.owner)
    plan.response.id = record.id
    plan.response.created_at = record.response.created_at
    plan.input = record.input
    plan.body = record.request
    run = ResponseRun(plan, services)
    await run.prepare()
    return run
