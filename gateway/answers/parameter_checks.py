"""Checks of parameters that depend on other parameters, or on the capabilities of engine, model and store.

`gateway.wire.parameter_table` defines the checks of single parameters; each `check_…_request` makes them first.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.models.served_model import ServedModel
from gateway.services import Services
from gateway.wire.chat import ChatRequest
from gateway.wire.chat_messages import AssistantMessage
from gateway.wire.completions import CompletionRequest
from gateway.wire.parameter_table import CHAT, COMPLETIONS, RESPONSES
from gateway.wire.parameters import SharedParameters
from gateway.wire.refusals import check_needs, refuse
from gateway.wire.request import ResponseRequest
from gateway.wire.structured import StructuredParameters

MAX_CHOICES: Final = 1024
"""Maximum number of choices in one request: prompts times `n`."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,256}")
"""A valid `request_id`. Engines receive it as the end of their own id."""
SCORES: Final = ("logprobs", "prompt_logprobs")
_OF_ENGINES: Final = (
    "allowed_token_ids",
    "thinking_token_budget",
    "thinking_budget_tokens",
    "return_tokens_as_token_ids",
    "vllm_xargs",
    "data_parallel_rank",
    "kv_transfer_params",
    "mm_processor_kwargs",
)


def check_response_request(request: ResponseRequest, services: Services, *, goes_on: bool) -> bool:
    """Reject unsupported parameters and combinations. `goes_on`: whether the previous response is available without the
    store. Returns whether the request is extended; see `refuse`."""
    extended = refuse(request, RESPONSES)
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
    # As in the OpenAI API: a later completion window requires a background response that is not streamed.
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


def check_chat_request(request: ChatRequest, services: Services) -> bool:
    """Reject unsupported parameters and combinations. Returns whether the request is extended; see `refuse`."""
    extended = refuse(request, CHAT)
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


def check_completion_request(request: CompletionRequest, model: ServedModel) -> None:
    """Reject unsupported parameters and combinations of a Completions request."""
    if refuse(request, COMPLETIONS):
        check_engine_parameters(request, model)
    check_stream_parameters(request)
    if request.skip_special_tokens is False and request.spaces_between_special_tokens:
        raise Unsupported(
            "Special tokens are shown without spaces between them here. Send false, or leave the parameter out.",
            param="spaces_between_special_tokens",
        )
    check_choices(request, request.n or 1, "n")
    capabilities = model.engine.capabilities
    check_needs(request, SCORES, capabilities)
    if request.echo and request.logprobs is not None and "prompt_logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities of the prompt, which echo shows beside it. Leave out logprobs, or echo.",
            param="echo",
        )


def check_choices(request: CompletionRequest, each: int, param: str) -> None:
    """Raise `InvalidRequest`, naming `param`, if all prompts with `each` choices exceed `MAX_CHOICES`."""
    if len(request.prompts) * each > MAX_CHOICES:
        raise InvalidRequest(
            f"At most {MAX_CHOICES} choices can be made at once: send fewer prompts, or a smaller {param}.",
            param=param,
        )


def check_engine_parameters(request: SharedParameters, model: ServedModel) -> None:
    """Raise `Unsupported` for parameters that the engine of `model` does not support or its configuration does not
    allow, and `InvalidRequest` for values that no engine accepts."""
    capabilities = model.engine.capabilities
    if request.allowed_token_ids == [] and "allowed_token_ids" in capabilities:
        raise InvalidRequest(
            "Invalid 'allowed_token_ids': empty array. Send at least one token id, or leave it out.",
            param="allowed_token_ids",
            code="empty_array",
        )
    check_needs(request, _OF_ENGINES, capabilities, model.config.engine_parameters)
    if request.request_id is not None and not _REQUEST_ID.fullmatch(request.request_id):
        raise InvalidRequest(
            "A request_id has letters, digits and the characters . _ : - only.",
            param="request_id",
            code="invalid_value",
        )


def check_stream_parameters(request: StructuredParameters) -> None:
    """Raise `InvalidRequest` for parameters that require a streamed answer, or one that is not streamed."""
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


def check_continuation(request: SharedParameters, ends_with_assistant: bool) -> None:
    """Raise `InvalidRequest` if the `continue_final_message` of `request` cannot be honoured."""
    if request.add_generation_prompt:
        raise InvalidRequest(
            "A message is either continued or a new one is started. Send one of continue_final_message and "
            "add_generation_prompt.",
            param="add_generation_prompt",
        )
    if not ends_with_assistant:
        raise InvalidRequest(
            "There is no final message of the assistant to continue.",
            param="continue_final_message",
        )
