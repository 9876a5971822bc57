"""Making the settings that all generations of a request share, from the parameters that all APIs share."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.base.errors import ParamPath
from gateway.generation.beam_search import beams_of
from gateway.generation.generation import GenerationSettings
from gateway.generation.media import part_resolver
from gateway.generation.policies import policies_for
from gateway.generation.text_format import structure_of
from gateway.generation.text_stops import RequestStops
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import Sampling, Turn
from gateway.services import Services
from gateway.wire.parameters import SharedParameters


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
    extended: bool = True,
) -> GenerationSettings:
    """Return the settings for `request`. Raises `Unsupported`, naming the parameter, for parameters that the engine
    does not support or the model's configuration does not allow.

    `api` is the short name of the API. `n` is the number of choices. `extended`: see `refuse`.
    """
    policies = policies_for(services.policies, api=api, model=model.name, owner=owner)
    if policies is not None:
        policies.check_shown(sampling)
    tag = services.authenticator.tag(owner)
    settings = GenerationSettings(
        policies=policies,
        sampling=sampling,
        stops=RequestStops(sampling.stop),
        cache_salt=request.cache_salt,
        owner=tag,
        cache_scope=f"{tag}\0{request.cache_salt or ''}",
        priority=request.priority or 0,
        trace_headers=trace_headers,
        hints=hints,
        size=size,
        tool_params=tool_params,
        parts=part_resolver(model, services, owner),
    )
    if not extended:
        return settings
    return msgspec.structs.replace(
        settings,
        structure=structure_of(request, model.engine.capabilities),
        request_id=request.request_id,
        thinking_budget=request.thinking_budget,
        vllm_xargs=request.vllm_xargs or {},
        data_parallel_rank=request.data_parallel_rank,
        kv_transfer_params=request.kv_transfer_params or {},
        mm_processor_kwargs=request.mm_processor_kwargs or {},
        beams=beams_of(request, model, sampling, n=n) if request.use_beam_search else None,
    )


def with_prompt_parameters(turn: Turn, request: SharedParameters) -> Turn:
    """Return `turn` with the parameters of `request` that determine how the prompt is rendered."""
    return msgspec.structs.replace(
        turn,
        chat_template=request.chat_template,
        chat_template_kwargs={**turn.chat_template_kwargs, **(request.chat_template_kwargs or {})},
        documents=request.documents or (),
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=bool(request.continue_final_message),
    )
