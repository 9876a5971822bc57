"""The request to the engine for one turn: prompt, sampling, constraint and the other parameters."""

from __future__ import annotations

import msgspec

from gateway.access.engine_priority import engine_priority
from gateway.base.constraints import Constraint, Triggered
from gateway.base.errors import Unsupported
from gateway.generation.generation import GenerationSettings, generation_id
from gateway.generation.structure import enforced
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import EngineRequest, RenderedPrompt, TokensPrompt, Turn


def engine_request(
    model: ServedModel,
    settings: GenerationSettings,
    turn: Turn,
    rendered: RenderedPrompt,
    *,
    shown: Turn,
    spent: int,
    began: bool,
) -> EngineRequest:
    """Return the engine request for `turn`. Raises `Unsupported` if the engine does not support a parameter.

    `shown` is the turn as it was rendered. `spent` is the number of output tokens that the answer already has. `began`:
    whether an engine has given any output for the answer.
    """
    sampling = settings.sampling
    limit = sampling.max_tokens
    if limit is not None and spent:
        limit -= spent
    in_text = stops_in_text(model, settings)
    request = EngineRequest(
        request_id=generation_id(settings.request_id),
        prompt=rendered.prompt,
        sampling=msgspec.structs.replace(
            sampling,
            max_tokens=limit,
            stop=(rendered.stop if in_text else (*sampling.stop, *rendered.stop)),
            include_stop_str_in_output=(sampling.include_stop_str_in_output and not in_text),
            stop_token_ids=(*sampling.stop_token_ids, *rendered.stop_token_ids),
            skip_special_tokens=not model.output_format.keeps_special_tokens,
        ),
        constraint=constraint_for(model, settings, turn, rendered),
        adapter=model.adapter,
        cache_salt=settings.cache_salt,
        owner=settings.owner,
        priority=engine_priority(model.engine, settings.priority),
        trace_headers=settings.trace_headers,
        hints=settings.hints,
        vllm_xargs=settings.vllm_xargs,
        data_parallel_rank=settings.data_parallel_rank,
        # They refer to the request's own prompt, not to the prompt of a later turn.
        kv_transfer_params={} if began else settings.kv_transfer_params,
        mm_processor_kwargs=settings.mm_processor_kwargs,
        turn=shown,
        tail=rendered.tail,
    )
    if isinstance(rendered.prompt, TokensPrompt) or (
        settings.thinking_budget is None and settings.beams is None
    ):
        return request
    # For engines that take tokens, the gateway implements these two itself.
    thinks = "thinking_budget" in model.engine.capabilities
    return msgspec.structs.replace(
        request,
        thinking_budget=settings.thinking_budget if thinks else None,
        beams=settings.beams,
    )


def constraint_for(
    model: ServedModel, settings: GenerationSettings, turn: Turn, rendered: RenderedPrompt
) -> Constraint | None:
    """Return the constraint for the engine, or None. Raises `Unsupported` with a beam search.

    An engine that cannot enforce a triggered constraint (strict arguments of optional calls) gets none: most clients
    set `strict` by default.
    """
    constraint = enforced(model.output_format, turn, rendered.tail, settings.structure)
    if isinstance(constraint, Triggered) and "triggered" not in model.engine.capabilities:
        return None
    if settings.beams is not None:
        formatted = settings.structure is not None or turn.text_format.kind != "text"
        if formatted or turn.tool_choice not in ("auto", "none"):
            raise Unsupported(
                "The output of a beam search cannot be enforced. Leave out the format of the text, or a tool_choice that "
                "requires a call.",
                param=("text", "format") if formatted else "tool_choice",
            )
        return None
    return constraint


def stops_in_text(model: ServedModel, settings: GenerationSettings) -> bool:
    """Whether the gateway matches stop strings. Message-level upstreams match them themselves, because they report
    their tokens only at the end."""
    return bool(settings.sampling.stop) and "tokens" in model.engine.capabilities
