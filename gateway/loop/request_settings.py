"""The settings that all generations of a request share, from the parameters that all APIs share."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.config import EngineParameter
from gateway.errors import InvalidRequest, ParamPath, Unsupported
from gateway.loop.beam_search import beams_of
from gateway.loop.generation import GenerationSettings
from gateway.loop.media import part_resolver
from gateway.loop.policies import policies_for
from gateway.loop.text_format import structure_of
from gateway.protocols import Sampling
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire.parameters import SharedParameters
from gateway.wire.structured import StructuredParameters

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,256}")


def settings_of(
    request: SharedParameters,
    model: ServedModel,
    services: Services,
    *,
    api: str,
    sampling: Sampling,
    owner: str | None,
    size: int,
    trace_headers: Mapping[str, str] | None,
    hints: Mapping[str, str] = {},
    tool_params: Mapping[str, ParamPath] = {},
    n: int = 1,
) -> GenerationSettings:
    """The settings for `request`, of which `n` choices are made. Raises `Unsupported`, naming the parameter, for what the engine cannot do or the
    model's configuration does not allow. `api` is the short name of the API."""
    policies = policies_for(services.policies, api=api, model=model.name, owner=owner)
    if policies is not None:
        policies.check_shown(sampling)
    tag = services.authenticator.tag(owner)
    return GenerationSettings(
        policies=policies,
        sampling=sampling,
        cache_salt=request.cache_salt,
        owner=tag,
        cache_scope=f"{tag}\0{request.cache_salt or ''}",
        priority=request.priority or 0,
        trace_headers=trace_headers,
        hints=hints,
        size=size,
        structure=(
            structure_of(request, model.engine.capabilities) if request.structures else None
        ),
        tool_params=tool_params,
        parts=part_resolver(model, services, owner),
        request_id=request_id_of(request),
        thinking_budget=request.thinking_budget,
        vllm_xargs=request.vllm_xargs or {},
        data_parallel_rank=request.data_parallel_rank,
        kv_transfer_params=request.kv_transfer_params or {},
        mm_processor_kwargs=request.mm_processor_kwargs or {},
        beams=beams_of(request, model, sampling, n=n) if request.use_beam_search else None,
    )


def check_engine_parameters(request: SharedParameters, model: ServedModel) -> None:
    """Raise `Unsupported` for parameters that the engine of `model` lacks, or that its configuration does not allow."""
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
            "The engine of this model keeps its tokens to itself.",
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


def request_id_of(request: SharedParameters) -> str | None:
    """The client's own id of the request, which the engine sees as the end of its id. Raises `InvalidRequest` for
    characters that engines may not take."""
    sent = request.request_id
    if sent is not None and not _REQUEST_ID.fullmatch(sent):
        raise InvalidRequest(
            "A request_id has letters, digits and the characters . _ : - only.",
            param="request_id",
            code="invalid_value",
        )
    return sent


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
