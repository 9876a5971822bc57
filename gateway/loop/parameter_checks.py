"""Checks of the parameters that all generating APIs share."""

from __future__ import annotations

import re
from typing import Final

from gateway.config import EngineParameter
from gateway.errors import InvalidRequest, Unsupported
from gateway.runtime.served_model import ServedModel
from gateway.wire.parameters import SharedParameters
from gateway.wire.structured import StructuredParameters

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,256}")
"""What engines may take. They see it as the end of their own id."""


def check_engine_parameters(request: SharedParameters, model: ServedModel) -> None:
    """Raise `Unsupported` for parameters that the engine of `model` lacks, or that its configuration does not allow; and
    `InvalidRequest` for values that no engine takes."""
    capabilities, allowed = model.engine.capabilities, model.config.engine_parameters
    if request.allowed_token_ids is not None and "allowed_token_ids" not in capabilities:
        raise Unsupported(
            "The engine of this model takes no list of allowed tokens. Use logit_bias.",
            param="allowed_token_ids",
        )
    if request.allowed_token_ids == []:
        raise InvalidRequest(
            "Invalid 'allowed_token_ids': empty array. Send at least one token id, or leave it out.",
            param="allowed_token_ids",
            code="empty_array",
        )
    if request.thinking_budget is not None and not capabilities & {"tokens", "thinking_budget"}:
        raise Unsupported(
            "The engine of this model counts its tokens itself, so its reasoning cannot be limited. Use the effort.",
            param=(
                "thinking_budget_tokens"
                if request.thinking_token_budget is None
                else "thinking_token_budget"
            ),
        )
    if request.return_tokens_as_token_ids and "tokens" not in capabilities:
        raise Unsupported(
            "The engine of this model does not report token ids. Leave the parameter out.",
            param="return_tokens_as_token_ids",
        )
    passed: list[EngineParameter] = []
    if request.vllm_xargs:
        passed.append("vllm_xargs")
    if request.data_parallel_rank is not None:
        passed.append("data_parallel_rank")
    if request.kv_transfer_params:
        passed.append("kv_transfer_params")
    if request.mm_processor_kwargs:
        passed.append("mm_processor_kwargs")
    for name in passed:
        if name not in allowed or name not in capabilities:
            raise Unsupported(
                f"This model does not take {name} from requests (engine_parameters). Leave it out.",
                param=name,
            )
    if request.request_id is not None and not _REQUEST_ID.fullmatch(request.request_id):
        raise InvalidRequest(
            "A request_id has letters, digits and the characters . _ : - only.",
            param="request_id",
            code="invalid_value",
        )


def check_stream_parameters(request: StructuredParameters) -> None:
    """Raise `InvalidRequest` for parameters that do not fit to whether the answer is streamed."""
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
    """Raise `InvalidRequest` unless `continue_final_message`, which `request` has, can be honoured."""
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
