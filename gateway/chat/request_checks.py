"""Checks of the parameters of a chat request, before it is planned."""

from __future__ import annotations

from gateway.errors import InvalidRequest, Unsupported
from gateway.loop.request_settings import check_continuation
from gateway.loop.unsupported import refuse
from gateway.runtime.services import Services
from gateway.wire.chat import ChatRequest
from gateway.wire.chat_messages import AssistantMessage


def check_request(request: ChatRequest, services: Services) -> None:
    """Reject unsupported parameters and combinations."""
    refuse(request, "chat")
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
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidRequest(
            "Log probabilities of the prompt are not streamed. Leave out stream, or prompt_logprobs.",
            param="prompt_logprobs",
        )
    if request.continue_final_message:
        check_continuation(request, isinstance(request.messages[-1], AssistantMessage))
    if request.store and services.store is None:
        raise Unsupported(
            'This server stores nothing (store = "none"). Leave store out.', param="store"
        )
