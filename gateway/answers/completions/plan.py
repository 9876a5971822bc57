"""Planning a Completions answer: one generation for each prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from gateway.access.engine_priority import engine_priority
from gateway.answers.completions.raw_output import RawOutput
from gateway.answers.hints import hints_of
from gateway.answers.parameter_checks import check_choices, check_completion_request
from gateway.base.constraints import Constraint, JsonObject, JsonSchema
from gateway.base.errors import InvalidRequest, Unsupported
from gateway.generation.beam_search import Beams, beams_of
from gateway.generation.error_params import CompletionParams, locate_fault
from gateway.generation.generation import (
    Generation,
    GenerationSettings,
    generation_id,
    refused_generation,
)
from gateway.generation.policies import Policies, policies_for
from gateway.generation.rendering import IN_THREAD
from gateway.generation.sampling import sampling_of
from gateway.generation.schema_limits import check_limits
from gateway.generation.text_format import structure_of, text_format_of
from gateway.generation.text_stops import RequestStops
from gateway.generation.token_texts import text_of_tokens
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    EngineRequest,
    PolicyRefusal,
    RenderedPrompt,
    Sampling,
    Tokenizer,
    TokensPrompt,
    Turn,
)
from gateway.services import Services
from gateway.wire.completions import CompletionRequest, Prompt
from gateway.wire.large_bodies import threaded_if_large, threaded_if_many

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default, used if neither the request nor the configuration sets a limit."""

_RAW = RawOutput()


class PreparedCompletion(Struct, frozen=True):
    """The plan of an answer: its model, and one generation per prompt, which the engine has accepted."""

    model: ServedModel
    generations: Sequence[Generation]
    texts: Sequence[str | None]
    """The text of each prompt that is echoed, unchanged unless the prompt was truncated. None for others."""
    tokenizer: Tokenizer
    settings: GenerationSettings


async def prepare_completion(
    request: CompletionRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
) -> PreparedCompletion:
    """Plan an answer with the model `model_name`, by default the model that the request names, and let the engine check
    its prompts. Raises a `GatewayError` that is answered with an HTTP status."""
    with CompletionParams(request):
        model = services.lookup.model(model_name or request.model)
        tokenizer = model.engine.tokenizer
        check_completion_request(request, model)
        if tokenizer is None or "tokens" not in model.engine.capabilities:
            raise Unsupported(
                "The engine of this model takes messages only. Use /v1/chat/completions.",
                param="prompt",
            )
        sampling = _sampling(request, model)
        structure = _structure(request, model)
        search = beams_of(request, model, sampling, n=request.n or 1)
        if search is not None:
            check_choices(request, search.width, "best_of")
        if search is not None and structure is not None:
            raise Unsupported(
                "The output of a beam search cannot be enforced. Leave out the format of the text.",
                param=("text", "format"),
            )
        if structure is not None:
            check = partial(check_limits, Turn(items=()), structure, {}, model.schema_limits)
            await threaded_if_large(size, check)
        generations: list[Generation] = []
        texts: list[str | None] = []
        policies = policies_for(services.policies, api="completions", model=model.name, owner=owner)
        stops = RequestStops(sampling.stop)
        await stops.build()
        settings = GenerationSettings(sampling=sampling, stops=stops, policies=policies)
        asked_of_engine = msgspec.structs.replace(sampling, stop=())
        if policies is not None:
            policies.check_shown(sampling, token_ids=bool(request.return_token_ids))
        for prompt in request.prompts:
            if policies is not None:
                decided = await _decided(prompt, policies, tokenizer)
                if isinstance(decided, PolicyRefusal):
                    generations.append(refused_generation(Turn(items=()), decided, sampling))
                    texts.append(None)
                    continue
                prompt = decided
            whole = await _token_ids(prompt, request, tokenizer, size)
            token_ids = _truncated(whole, request, model)
            text: str | None = None
            if request.echo:
                if isinstance(prompt, str) and len(token_ids) == len(whole):
                    text = prompt
                else:
                    skips = sampling.skip_special_tokens
                    shown = partial(text_of_tokens, tokenizer, skip_special_tokens=skips)
                    text = await threaded_if_many(token_ids, shown)
            texts.append(text)
            rendered = RenderedPrompt(prompt=TokensPrompt(token_ids=token_ids), tail="text")
            asked = EngineRequest(
                request_id=generation_id(request.request_id),
                prompt=rendered.prompt,
                sampling=asked_of_engine,
                constraint=structure,
                adapter=model.adapter,
                cache_salt=request.cache_salt,
                owner=services.authenticator.tag(owner),
                priority=engine_priority(model.engine, request.priority),
                trace_headers=trace_headers,
                hints=hints_of(request),
                vllm_xargs=request.vllm_xargs or {},
                data_parallel_rank=request.data_parallel_rank,
                kv_transfer_params=request.kv_transfer_params or {},
                tail="text",
            )
            generation = Generation(
                turn=Turn(items=()),
                rendered=rendered,
                request=asked,
                beams=None if search is None else Beams(search),
            )
            try:
                await generation.check(model.engine)
            except InvalidRequest as error:
                if structure is not None:
                    await locate_fault(error, asked, structure, model.engine, {})
                raise
            generations.append(generation)
        raw = msgspec.structs.replace(model, output_format=_RAW)
        return PreparedCompletion(raw, generations, texts, tokenizer, settings)


def _sampling(request: CompletionRequest, model: ServedModel) -> Sampling:
    prompt_logprobs = request.prompt_logprobs
    if prompt_logprobs is None and request.echo:
        prompt_logprobs = request.logprobs
    most = request.max_tokens
    if most is None and model.config.sampling.max_tokens is None:
        most = DEFAULT_MAX_TOKENS
    sampling = sampling_of(
        request,
        model,
        max_tokens=1 if most == 0 else most,
        logprobs=request.logprobs,
        prompt_logprobs=prompt_logprobs,
    )
    skips = request.skip_special_tokens is not False
    return msgspec.structs.replace(sampling, skip_special_tokens=skips)


def _structure(request: CompletionRequest, model: ServedModel) -> Constraint | None:
    text_format = text_format_of(request)
    match text_format.kind:
        case "json_schema":
            return JsonSchema(text_format.schema or {})
        case "json_object":
            return JsonObject()
        case _:
            return structure_of(request, model.engine.capabilities)


async def _decided(
    prompt: Prompt, policies: Policies, tokenizer: Tokenizer
) -> Prompt | PolicyRefusal:
    """Return the prompt as the policies changed it, or their refusal. Policies receive token ids as text."""
    text = (
        prompt
        if isinstance(prompt, str)
        else await threaded_if_many(prompt, partial(text_of_tokens, tokenizer))
    )
    decided = await policies.texts([text])
    if isinstance(decided, PolicyRefusal):
        return decided
    return prompt if decided[0] == text else decided[0]


async def _token_ids(
    prompt: Prompt, request: CompletionRequest, tokenizer: Tokenizer, size: int
) -> Sequence[int]:
    if not isinstance(prompt, str):
        return prompt
    special = request.add_special_tokens is not False
    if size <= IN_THREAD:
        return tokenizer.encode(prompt, add_special_tokens=special)
    return await asyncio.to_thread(tokenizer.encode, prompt, add_special_tokens=special)


def _truncated(
    token_ids: Sequence[int], request: CompletionRequest, model: ServedModel
) -> Sequence[int]:
    """Return the last `truncate_prompt_tokens` tokens of the prompt. For -1, return as many as leave room for the
    answer."""
    most = request.truncate_prompt_tokens
    if most == -1:
        context = model.info.max_model_len
        if context is None:
            return token_ids
        most = max(1, context - max(1, request.max_tokens or DEFAULT_MAX_TOKENS))
    if most == 0:
        raise InvalidRequest(
            "truncate_prompt_tokens of 0 leaves no prompt. Send a larger number.",
            param="truncate_prompt_tokens",
            code="invalid_value",
        )
    return token_ids if most is None else token_ids[-most:]
