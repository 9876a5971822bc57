"""Running a background response again if its process died before any output was visible."""

from __future__ import annotations

from gateway.protocols import StoredResponse
from gateway.responses.plan import Plan
from gateway.responses.routed import prepare_run
from gateway.responses.run import ResponseRun
from gateway.runtime.callers import Caller, called_by
from gateway.runtime.services import Services
from gateway.wire.request import decode_response_request


def body_for_rerun(plan: Plan, body: bytes, services: Services) -> bytes | None:
    """The request body to store with a response that may have to be run again.

    None if this is not configured, or if the request contains credentials, which are not stored.
    """
    if not (plan.background and services.config.server.rerun_lost):
        return None
    return None if plan.has_credentials else body


async def recreate_run(record: StoredResponse, services: Services) -> ResponseRun:
    """A prepared run for the stored response, with the same id. Raises `GatewayError` if it cannot be run here, also because its
    owner's key was revoked or has expired. An authenticator cannot be asked again without the request."""
    assert record.request is not None, "who asks has looked"
    request = decode_response_request(record.request)
    with called_by(Caller(services.authenticator.owner(record.owner))):
        return await prepare_run(
            request, services, size=len(record.request), owner=record.owner, stored=record
        )
