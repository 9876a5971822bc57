"""Running one answer of Completions, with its choices in parallel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import msgspec
from msgspec import UNSET, Struct

from gateway.assembly.logprobs import LogprobAligner, token_by_id
from gateway.completions.params import request_path
from gateway.completions.raw_output import RawOutput
from gateway.completions.writer import CompletionWriter, Echo
from gateway.constraints import Constraint, JsonObject, JsonSchema
from gateway.errors import InvalidRequest, Unsupported, renamed_params
from gateway.loop.attempts import Attempts
from gateway.loop.beam_search import Beams, beams_of
from gateway.loop.choices import ByteSink, ChoicesRun, completion_usage
from gateway.loop.chunks import chunk_head, last_chunk
from gateway.loop.generation import (
    Generation,
    GenerationSettings,
    generation_id,
    refused_generation,
    variant,
)
from gateway.loop.generator import Generator
from gateway.loop.hints import hints_of
from gateway.loop.observer import OutputObserver
from gateway.loop.param_paths import locate_fault
from gateway.loop.parameter_checks import check_engine_parameters, check_stream_parameters
from gateway.loop.policies import Policies, policies_for
from gateway.loop.rendering import IN_THREAD
from gateway.loop.sampling import sampling_of
from gateway.loop.schema_limits import check_limits
from gateway.loop.text_format import structure_of, text_format_of
from gateway.loop.unsupported import refuse, refuse_scores
from gateway.loop.usage import ExpectedTokens, expected_tokens
from gateway.protocols import (
    EngineRequest,
    PolicyRefusal,
    RenderedPrompt,
    Sampling,
    Tokenizer,
    TokenLogprob,
    TokensPrompt,
    Turn,
)
from gateway.runtime.callers import engine_priority
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire.completions import Completion, CompletionRequest, Prompt
from gateway.wire.ids import new_id
from gateway.wire.large_bodies import beside

MAX_CHOICES = 1024
"""Maximum number of choices in one request: prompts times `n`."""

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default, used if neither the request nor the configuration sets a limit."""


class TextChoice:
    """One choice, with its own generator and text writer."""

    def __init__(
        self,
        index: int,
        request: CompletionRequest,
        model: ServedModel,
        services: Services,
        first: Generation,
        head: bytes,
        tokenizer: Tokenizer,
        *,
        text: str | None,
        counts_prompt: bool,
        policies: Policies | None,
    ) -> None:
        """`text`: the prompt as it was sent; None if it was sent as token ids, or truncated."""
        options = request.stream_options
        logprobs = request.logprobs is not None
        shows_ids = bool(request.return_tokens_as_token_ids)
        aligner = LogprobAligner(shows_ids=shows_ids, every=True) if logprobs else None
        token_ids: list[int] | None = [] if request.return_token_ids else None
        prompt = first.request.prompt
        assert isinstance(prompt, TokensPrompt), "prompts are token ids here"
        self._request = request
        self._mute = request.max_tokens == 0
        self.observer = OutputObserver(
            aligner=aligner, token_ids=token_ids, counts_output=not self._mute
        )
        includes_usage = bool(request.stream and options and options.include_usage)
        continuous = bool(includes_usage and options and options.continuous_usage_stats)
        echo = None
        if request.echo:
            first_token = tokenizer.decode(prompt.token_ids[:1])
            if text is None:
                skips = request.skip_special_tokens is not False
                text = tokenizer.decode(prompt.token_ids, skip_special_tokens=skips)
            echo = Echo(
                text,
                first_token,
                f"token_id:{prompt.token_ids[0]}" if shows_ids else first_token,
                partial(self._prompt_scores, shows_ids=shows_ids) if logprobs else None,
            )
        self.writer = CompletionWriter(
            index,
            head=head if request.stream else None,
            aligner=aligner,
            echo=echo,
            mute=self._mute,
            token_ids=token_ids,
            prompt_token_ids=prompt.token_ids,
            includes_usage=includes_usage,
            usage_so_far=self.observer.usage if continuous else None,
        )
        self._first = first
        self.generator = Generator(
            model,
            GenerationSettings(sampling=first.request.sampling, raw_stops=True, policies=policies),
            services.metrics,
            aligner=aligner,
            observer=self.observer,
        )
        self.generator.counts_prompt = counts_prompt

    def _prompt_scores(self, *, shows_ids: bool) -> Sequence[TokenLogprob | None]:
        scores = self.observer.prompt_logprobs
        if not shows_ids:
            return scores
        return [None if each is None else token_by_id(each) for each in scores]

    @property
    def cut_off(self) -> bool:
        return self.writer.finish_reason != "stop"

    async def run(self, sink: ByteSink) -> bytes:
        with _request_params(self._request):
            last = await self.generator.run(self._first, self.writer, sink)
        if self._mute:
            self.generator.tokens.output = 0
        return last + self.writer.finish(self.generator.stop_reason)


class PreparedCompletion(Struct, frozen=True):
    """The model of an answer, and one generation per prompt, each accepted by the engine."""

    model: ServedModel
    generations: Sequence[Generation]
    texts: Sequence[str | None]
    """Each prompt as it was sent; None for token ids, and for what was truncated."""
    tokenizer: Tokenizer
    policies: Policies | None = None


class CompletionRun(ChoicesRun[PreparedCompletion]):
    """One prepared answer."""

    def __init__(
        self,
        request: CompletionRequest,
        services: Services,
        prepared: PreparedCompletion,
        attempts: Attempts[PreparedCompletion] | None = None,
    ) -> None:
        self._request = request
        self._id = new_id("cmpl-")
        self._created = int(time.time())
        super().__init__(services, prepared, attempts, api="completions")

    def take(
        self, prepared: PreparedCompletion
    ) -> tuple[ServedModel, Sequence[TextChoice], ExpectedTokens]:
        request, model = self._request, prepared.model
        self._head = chunk_head(
            self._id, "text_completion", self._created, model.name, None, model.fingerprint
        )
        n = request.n or 1
        self._made = [
            TextChoice(
                number * n + index,
                request,
                model,
                self.services,
                variant(generation, index),
                self._head,
                prepared.tokenizer,
                text=prepared.texts[number],
                counts_prompt=index == 0,
                policies=prepared.policies,
            )
            for number, generation in enumerate(prepared.generations)
            for index in range(n)
        ]
        self.scope.stats.response_id = self._id
        return (
            model,
            self._made,
            expected_tokens(
                (each.request for each in prepared.generations),
                max(each.sequences(n) for each in prepared.generations),
            ),
        )

    def trailer(self) -> bytes:
        options = self._request.stream_options
        return last_chunk(
            self._head,
            completion_usage(self.usage()) if options and options.include_usage else None,
            self.times() if self._request.timings_per_token else None,
        )

    def answer(self) -> Completion:
        shows_prompt = self._request.prompt_logprobs is not None
        times = self.times() if self._request.timings_per_token else None
        return Completion(
            id=self._id,
            created=self._created,
            model=self.model.name,
            system_fingerprint=self.model.fingerprint,
            choices=[
                choice.writer.choice(choice.observer.shown_prompt() if shows_prompt else None)
                for choice in self._made
            ],
            usage=completion_usage(self.usage()),
            timings=UNSET if times is None else times.timings,
            metrics=UNSET if times is None else times.metrics,
            kv_transfer_params=next(
                (told for each in self._made if (told := each.observer.kv_transfer_params)), UNSET
            ),
        )


async def prepare_completion(
    request: CompletionRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
) -> PreparedCompletion:
    """Plan an answer, by the model `model_name` if that is not the one that the request names, and let the engine check its prompts. Raises a `GatewayError` that is to be answered with an HTTP
    status."""
    with _request_params(request):
        model = services.lookup.model(model_name or request.model)
        tokenizer = model.engine.tokenizer
        _refuse(request, model)
        if tokenizer is None or "tokens" not in model.engine.capabilities:
            raise Unsupported(
                "The engine of this model takes messages only. Use /v1/chat/completions.",
                param="prompt",
            )
        sampling = _sampling(request, model)
        structure = _structure(request, model)
        search = beams_of(request, model, sampling, n=request.n or 1)
        if search is not None:
            _check_choices(request, search.width, "best_of")
        if search is not None and structure is not None:
            raise Unsupported(
                "The output of a beam search cannot be enforced. Leave out the format of the text.",
                param=("text", "format"),
            )
        if structure is not None:
            check = partial(check_limits, Turn(items=()), structure, {}, model.schema_limits)
            await beside(size, check)
        generations: list[Generation] = []
        texts: list[str | None] = []
        policies = policies_for(services.policies, api="completions", model=model.name, owner=owner)
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
            as_sent = prompt if isinstance(prompt, str) else None
            texts.append(as_sent if len(token_ids) == len(whole) else None)
            rendered = RenderedPrompt(prompt=TokensPrompt(token_ids=token_ids), tail="text")
            asked = EngineRequest(
                request_id=generation_id(request.request_id),
                prompt=rendered.prompt,
                sampling=sampling,
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
        return PreparedCompletion(raw, generations, texts, tokenizer, policies)


def _request_params(request: CompletionRequest) -> AbstractContextManager[None]:
    """A context in which errors name the parameters of `request`."""
    return renamed_params(partial(request_path, request=request))


_RAW = RawOutput()


def _refuse(request: CompletionRequest, model: ServedModel) -> None:
    if refuse(request, "completions"):
        check_engine_parameters(request, model)
    check_stream_parameters(request)
    if request.skip_special_tokens is False and request.spaces_between_special_tokens:
        raise Unsupported(
            "Special tokens are shown without spaces between them here. Send false, or leave the parameter out.",
            param="spaces_between_special_tokens",
        )
    _check_choices(request, request.n or 1, "n")
    capabilities = model.engine.capabilities
    refuse_scores(request, capabilities)
    if request.echo and request.logprobs is not None and "prompt_logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities of the prompt, which echo shows beside it. Leave out logprobs, or echo.",
            param="echo",
        )


def _check_choices(request: CompletionRequest, each: int, param: str) -> None:
    if len(request.prompts) * each > MAX_CHOICES:
        raise InvalidRequest(
            f"At most {MAX_CHOICES} choices can be made at once: send fewer prompts, or a smaller {param}.",
            param=param,
        )


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
    """The prompt as the policies let it pass. Token ids are shown to them as text."""
    text = (
        prompt if isinstance(prompt, str) else tokenizer.decode(prompt, skip_special_tokens=False)
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
    """The last `truncate_prompt_tokens` tokens of the prompt; for -1, as many as leave room for the answer."""
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
