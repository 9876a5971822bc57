"""Checks of the parameters of a chat request, before it is planned."""

from __future__ import annotations

from gateway.errors import InvalidRequest, Unsupported
from gateway.loop.parameter_checks import check_continuation, check_stream_parameters
from gateway.loop.unsupported import refuse
from gateway.runtime.services import Services
from gateway.wire.chat import ChatRequest
from gateway.wire.chat_messages import AssistantMessage


def check_request(request: ChatRequest, services: Services) -> bool:
    """Reject unsupported parameters and combinations. Returns whether the request is extended; see `refuse`."""
    extended = refuse(request, "chat")
    if request.modalities is not None and "audio" in request.modalities:
        raise Unsupported(
            "Audio output is not available on this server. Ask for text.", param="modalities"
        )
    if (
        request.top_logprobs and not request.logprobs
    ):  # 0 requests nothing, and some clients always send it
        raise InvalidRequest(
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
            param="top_logprobs",
        )
    check_stream_parameters(request)
    if request.continue_final_message:
        check_continuation(request, isinstance(request.messages[-1], AssistantMessage))
    if request.store and services.store is None:
        raise Unsupported(
            'This server stores nothing (store = "none"). Leave store out.', param="store"
        )
    return extended
