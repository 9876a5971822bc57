"""Checks of the parameters of a request to the Responses API, before anything is read from the store."""

from __future__ import annotations

from gateway.errors import InvalidRequest, Unsupported
from gateway.loop.unsupported import refuse
from gateway.runtime.services import Services
from gateway.wire.request import ResponseRequest


def check_request(request: ResponseRequest, services: Services, *, goes_on: bool) -> bool:
    """Reject unsupported parameters and combinations. `goes_on`: the previous response is available. Returns whether the
    request is extended; see `refuse`."""
    extended = refuse(request, "responses")
    if request.previous_response_id is not None and request.conversation is not None:
        raise InvalidRequest(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Send one of them.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if request.background and request.store is False:
        raise InvalidRequest(
            "A background response is fetched later, so it must be stored. Leave store out, or background.",
            param="background",
        )
    # Of the OpenAI API: a later completion window requires a background response that is not streamed.
    window = request.background_options.completion_window if request.background_options else None
    if window not in (None, "soonest") and (not request.background or request.stream):
        raise InvalidRequest(
            f"A completion window of {window} is for background responses without a stream. "
            "Send background: true and leave stream out, or ask for 'soonest'.",
            param=("background_options", "completion_window"),
            code="invalid_value",
        )
    if services.store is None:
        for name in ("background", "conversation", "previous_response_id"):
            if getattr(request, name) and not (goes_on and name == "previous_response_id"):
                raise Unsupported(
                    f"This server stores nothing (store = \"none\"), so '{name}' cannot be honoured. "
                    "Send all items as input.",
                    param=name,
                )
        if request.store:
            raise Unsupported(
                'This server stores nothing (store = "none"). Leave store out.', param="store"
            )
    return extended
