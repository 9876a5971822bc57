"""Responses that fail before they are planned, after their stream has begun."""

from __future__ import annotations

from gateway.answers.responses.ending import failure_code
from gateway.answers.responses.initial_response import initial_response
from gateway.base.errors import GatewayError
from gateway.plugins.protocols import Sampling
from gateway.wire.event_frames import SSE_DONE, sse_frame
from gateway.wire.events import Event, ResponseCreated, ResponseFailed, ResponseInProgress
from gateway.wire.request import ResponseRequest
from gateway.wire.response import mark_failed, snapshot


def failed_start(request: ResponseRequest, error: GatewayError) -> bytes:
    """Return all server-sent events of a response to `request` that failed with `error`. The response shows no tools,
    and is not stored."""
    sampling = Sampling(temperature=request.temperature, top_p=request.top_p)
    response = initial_response(request, request.model or "", sampling, [], None, None, store=False)
    begun = snapshot(response)
    mark_failed(response, failure_code(error), error.message)
    events: list[Event] = [
        ResponseCreated(sequence_number=0, response=begun),
        ResponseInProgress(sequence_number=1, response=begun),
        ResponseFailed(sequence_number=2, response=response),
    ]
    return b"".join((*map(sse_frame, events), SSE_DONE))
