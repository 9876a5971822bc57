"""The engine: sends requests to vLLM's `AsyncLLM` and converts its outputs. Imports vLLM."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import msgspec
from vllm.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    VLLMClientError,
)
from vllm.inputs import tokens_input  # type: ignore[import-not-found,unused-ignore]
from vllm.sampling_params import (  # type: ignore[import-not-found,unused-ignore]
    RequestOutputKind,
    SamplingParams,
)

from gateway.sdk import (
    EngineContext,
    EngineError,
    EngineOutput,
    EngineRequest,
    FinishReason,
    InvalidRequest,
    MetricSample,
    TokensPrompt,
)
from gateway.sdk.engines import HfTokenizer, TextAligner, context_exceeded, prompt_tokens
from gateway.sdk.wire import threaded_if_large
from gateway_vllm.config import VllmConfig
from gateway_vllm.enforcer import Enforcer
from gateway_vllm.host import FAILURES, Host
from gateway_vllm.logprobs import prompt_logprobs, scored_tokens
from gateway_vllm.model_info import capabilities, model_info
from gateway_vllm.multi_modal import MultiModal
from gateway_vllm.samples import registered_samples
from gateway_vllm.sampling import sampling_arguments

_INT64 = 2**63
_TOKEN = 64
"""Bytes that are read in about the time that a token's log probabilities take."""
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "repetition": "stop",
}


class VllmEngine:
    """vLLM in process. The model runs in vLLM's own processes; this object sends requests and reads outputs."""

    def __init__(self, host: Host, config: VllmConfig, context: EngineContext) -> None:
        llm = host.llm
        self._host = host
        self._measured_as: str | None = None
        if config.metrics:
            name = llm.model_config.served_model_name
            self._measured_as = name[0] if isinstance(name, list) else name
        self.tokenizer = HfTokenizer(llm.get_tokenizer())
        self.info = model_info(llm, config, context)
        self._multi_modal = MultiModal(llm)
        self.capabilities = capabilities(config, llm) | self._multi_modal.capabilities
        self._vocabulary: int = max(
            llm.model_config.get_vocab_size(), llm.get_tokenizer().max_token_id + 1
        )
        self._length: int = llm.model_config.max_model_len
        self._ranks: int = llm.vllm_config.parallel_config.data_parallel_size
        self._defaults: dict[str, Any] = llm.model_config.get_diff_sampling_param()
        self._takes_priority = config.scheduling_policy == "priority"
        self._traces = llm.observability_config.otlp_traces_endpoint is not None
        self._enforcer = Enforcer(
            llm, config, self.tokenizer, compile_seconds=context.compile_seconds
        )

    @property
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return 2**31 - 1 if self._takes_priority else None

    @property
    def running(self) -> int:
        """Number of unfinished requests with at least one token. Counted on each access, without asking vLLM."""
        return len(self._states()) - self.waiting

    @property
    def waiting(self) -> int:
        """Number of requests without a token yet: queued by vLLM, or in prefill."""
        return sum(state.is_prefilling for state in self._states())

    def metrics(self) -> list[MetricSample]:
        """vLLM's own metrics; empty unless they are configured."""
        return [] if self._measured_as is None else registered_samples(self._measured_as)

    async def load_adapter(self, name: str, path: str) -> None:
        await self._host.add_adapter(name, path)
        self.info = msgspec.structs.replace(self.info, adapters=self._host.adapters)
        self.capabilities |= {"adapters"}

    async def unload_adapter(self, name: str) -> None:
        self._host.remove_adapter(name)
        self.info = msgspec.structs.replace(self.info, adapters=self._host.adapters)

    async def end_helpers(self) -> None:
        """End the helper processes that compile constraints."""
        await self._enforcer.trials.close()

    def forget(self) -> None:
        """Drop the references to vLLM after it has ended."""
        self._enforcer.forget()
        self._multi_modal.forget()

    async def health(self) -> None:
        """Return if the engine can serve now; otherwise raise `EngineUnavailable` with the reason."""
        self._host.require_life()

    async def check(self, request: EngineRequest) -> None:
        """Raise what `generate` would raise for this request. Starts nothing."""
        self._host.require_life()
        length, _ = await self._input(request)
        await self._enforcer.trials.prepare(request)
        params = self._sampling(request, length)
        self._host.known_adapter(request.adapter)
        self._enforcer.verify(params, request)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. Closing the generator, or cancelling its task, aborts the request in vLLM."""
        self._host.require_life()
        sampling = request.sampling
        length, prompt = await self._input(request)
        await self._enforcer.trials.prepare(request)
        params = self._sampling(request, length)
        piece = self.tokenizer.piece
        aligner = None
        if sampling.logprobs is not None:
            hidden = self.tokenizer.special_ids if sampling.skip_special_tokens else frozenset()
            aligner = TextAligner(piece, hidden)
        adapter = await self._host.adapter(request.adapter)
        outputs = self._llm.generate(
            prompt,
            params,
            request.request_id,
            lora_request=adapter,
            trace_headers=request.trace_headers if self._traces else None,
            priority=request.priority,
            data_parallel_rank=request.data_parallel_rank,
            # The constraint itself covers the reasoning, so vLLM's reasoning parser must not delay it.
            reasoning_ended=None if params.structured_outputs is None else True,
        )
        began = False
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    made = output.outputs[0]
                    if made.finish_reason is None and began and aligner is None:
                        yield EngineOutput(text=made.text, token_ids=made.token_ids)
                        continue
                    given = EngineOutput(text=made.text, token_ids=made.token_ids)
                    if not began:
                        began = True
                        given.prompt_tokens = length
                        given.cached_tokens = output.num_cached_tokens
                        if aligner is not None:
                            self._leave_tokens_undecoded(request.request_id)
                        if output.prompt_logprobs:
                            given.prompt_logprobs = await threaded_if_large(
                                _TOKEN * length,
                                partial(prompt_logprobs, output.prompt_logprobs, piece),
                            )
                    if made.finish_reason is not None:
                        _end(given, made)
                        given.kv_transfer_params = output.kv_transfer_params
                    if aligner is not None:
                        given.logprobs = aligner.push(
                            scored_tokens(made.logprobs, piece, request.sampling.logprobs or 0),
                            made.text,
                            ended_by_token=given.finish_reason == "stop"
                            and not isinstance(given.stop_reason, str)
                            and not sampling.include_stop_str_in_output,
                            last=given.finish_reason is not None,
                        )
                        # Token ids are held back with their log probabilities, so that each output has as many of each.
                        given.token_ids = [token.token_id for token in given.logprobs]
                    yield given
        except FAILURES as error:
            raise self._host.failure(error) from error
        except VLLMClientError as error:
            raise self._enforcer.refusal(error, request) from error

    async def count(self, prompt: TokensPrompt) -> int:
        """The length of `prompt` in tokens."""
        self._host.require_life()
        length, _ = await self._input(EngineRequest(request_id="", prompt=prompt))
        return length

    async def _input(self, request: EngineRequest) -> tuple[int, Any]:
        """vLLM's input, and its length in tokens. Raises `InvalidRequest`."""
        ids = self._prompt(request)
        media = request.prompt.media if isinstance(request.prompt, TokensPrompt) else ()
        self._multi_modal.check(ids, media)
        if not media:
            return len(ids), tokens_input(ids, cache_salt=request.prefix_salt)
        expanded = await self._multi_modal.expand(ids, media, request)
        length = len(expanded["prompt_token_ids"])
        self._check_length(length)
        return length, expanded

    def _check_length(self, length: int) -> None:
        if length >= self._length:
            raise context_exceeded(length, self._length)

    def _leave_tokens_undecoded(self, request_id: str) -> None:
        """Stop vLLM from decoding every alternative, about 100 µs per token: their bytes are looked up here."""
        processor = self._llm.output_processor
        for internal_id in processor.external_req_ids.get(request_id, ()):
            state = processor.request_states.get(internal_id)
            if state is not None and state.logprobs_processor is not None:
                state.logprobs_processor.tokenizer = None

    def _prompt(self, request: EngineRequest) -> list[int]:
        ids = prompt_tokens(request, vocabulary=self._vocabulary)
        self._check_length(len(ids))
        return ids

    def _sampling(self, request: EngineRequest, prompt_length: int) -> Any:
        if request.priority and not self._takes_priority:
            raise InvalidRequest(
                "This model does not schedule by priority. Leave priority out, or have the server set "
                'scheduling_policy = "priority".',
                param="priority",
            )
        if not -_INT64 <= request.priority < _INT64:
            raise InvalidRequest("priority must be a 64-bit integer.", param="priority")
        arguments = sampling_arguments(
            request.sampling, defaults=self._defaults, room=self._length - prompt_length
        )
        # vLLM validates the other token ids itself. A stop token id outside the vocabulary crashes its worker.
        if wrong := [t for t in request.sampling.stop_token_ids if not 0 <= t < self._vocabulary]:
            raise InvalidRequest(
                f"stop_token_ids: token id {wrong[0]} is outside the model's vocabulary of {self._vocabulary} tokens.",
                param="stop_token_ids",
            )
        rank = request.data_parallel_rank
        if rank is not None and rank >= self._ranks:
            raise InvalidRequest(
                f"data_parallel_rank must be less than {self._ranks}, the number of this model's replicas.",
                param="data_parallel_rank",
            )
        if request.vllm_xargs or request.kv_transfer_params:
            extra = arguments["extra_args"] = dict(request.vllm_xargs)
            if request.kv_transfer_params:
                extra["kv_transfer_params"] = dict(request.kv_transfer_params)
        if wrong := [t for t in request.sampling.allowed_token_ids if t >= self._vocabulary]:
            raise InvalidRequest(
                f"allowed_token_ids: token id {wrong[0]} is outside the model's vocabulary of {self._vocabulary} tokens.",
                param="allowed_token_ids",
            )
        self._enforcer.constrain(arguments, request)
        try:
            # The parameters belong to this request only, so vLLM need not copy them.
            return SamplingParams(output_kind=RequestOutputKind.DELTA, skip_clone=True, **arguments)
        except (VLLMClientError, ValueError) as error:
            raise self._enforcer.refusal(error, request) from error

    @property
    def _llm(self) -> Any:
        return self._host.llm

    def _states(self) -> Any:
        return () if self._llm is None else self._llm.output_processor.request_states.values()


def _end(given: EngineOutput, made: Any) -> None:
    """Set how the generation ended. Raises `EngineError` if vLLM aborted it."""
    finish = _FINISH.get(made.finish_reason)
    if finish is None:
        raise EngineError("vLLM gave up on this request. Its log says why; others may succeed.")
    given.finish_reason = finish
    given.stop_reason = made.stop_reason
    if finish == "stop" and made.stop_reason is None and made.token_ids:
        given.stop_reason = made.token_ids[-1]
