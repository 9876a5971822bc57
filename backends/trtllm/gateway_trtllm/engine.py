"""The engine: sends requests to TensorRT-LLM's `LLM` and converts its outputs. Imports TensorRT-LLM."""

from __future__ import annotations

import inspect
import logging
import os
import uuid
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorrt_llm import SamplingParams  # type: ignore[import-not-found,unused-ignore]
from tensorrt_llm.executor import LoRARequest  # type: ignore[import-not-found,unused-ignore]
from tensorrt_llm.llmapi import (  # type: ignore[import-not-found,unused-ignore]
    GuidedDecodingParams,
    RequestError,
)

from gateway.sdk import (
    Capability,
    ConfigurationError,
    EngineContext,
    EngineError,
    EngineOutput,
    EngineRequest,
    GatewayError,
    InvalidRequest,
    PlacedMedia,
    TokensPrompt,
    Unsupported,
)
from gateway.sdk.engines import HfTokenizer, prompt_tokens, unknown_adapter
from gateway.sdk.wire import threaded_if_large
from gateway_trtllm.config import TrtllmConfig
from gateway_trtllm.errors import failed, refused
from gateway_trtllm.generation import TrtllmGeneration
from gateway_trtllm.lifeline import Lifeline
from gateway_trtllm.model_info import hf_tokenizer, max_length, model_info, vocabulary_size
from gateway_trtllm.multi_modal import MultiModal
from gateway_trtllm.sampling import LAST_PRIORITY, priority, sampling_arguments
from gateway_trtllm.scheduling import (
    attention_ranks,
    conversation_of,
    scheduling,
    waiting_queue_policy,
)

if TYPE_CHECKING:
    from gateway_trtllm.guided import ConstraintTranslator

logger = logging.getLogger("gateway.trtllm")

_TOKEN = 64
"""Bytes that are read in about the time that a token's log probabilities take."""
_EVERYWHERE: frozenset[Capability] = frozenset({"tokens", "logprobs", "prompt_logprobs"})


class TrtllmEngine:
    """TensorRT-LLM in process. The model runs in TensorRT-LLM's workers; this object sends requests and reads
    tokens."""

    def __init__(
        self, llm: Any, config: TrtllmConfig, context: EngineContext, lifeline: Lifeline
    ) -> None:
        self._llm = llm
        self._lifeline = lifeline
        self.tokenizer = HfTokenizer(hf_tokenizer(llm, context))
        self.info = model_info(llm, config, context)
        self._ends = self.info.eos_token_ids
        self._length = max_length(llm, config, context)
        self._vocabulary = vocabulary_size(llm, len(hf_tokenizer(llm, context)))
        self._takes = frozenset(inspect.signature(llm.generate_async).parameters)
        """Parameters of this version's `generate_async`."""
        self._schedules_by_priority = (
            "priority" in self._takes and waiting_queue_policy(llm.args) == "priority"
        )
        self._ranks = attention_ranks(llm.args) if "scheduling_params" in self._takes else 0
        """Number of attention's data-parallel ranks that a request may choose; 0 if there are none."""
        self._traces = bool(getattr(llm.args, "otlp_traces_endpoint", None))
        self._guide: ConstraintTranslator | None = None
        self.capabilities = _EVERYWHERE
        if config.guided_decoding != "none":
            # It imports xgrammar, which only constraints need.
            from gateway_trtllm.guided import ConstraintTranslator

            self._guide = ConstraintTranslator(
                config, self.tokenizer, self._ends, compile_seconds=context.compile_seconds
            )
            self.capabilities |= self._guide.capabilities
        self._adapters = _adapters(config)
        if self._adapters:
            self.capabilities |= {"adapters"}
        self._multi_modal = MultiModal(llm, self.tokenizer)
        self.capabilities |= self._multi_modal.capabilities
        if self._ranks:
            self.capabilities |= {"data_parallel_rank"}
        self._running: dict[str, Any] = {}
        self._begun: set[str] = set()

    @property
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return LAST_PRIORITY if self._schedules_by_priority else None

    @property
    def running(self) -> int:
        """Number of unfinished requests with at least one token."""
        return len(self._begun)

    @property
    def waiting(self) -> int:
        """Number of requests without a token yet: queued, or in prefill."""
        return len(self._running) - len(self._begun)

    def end_requests(self) -> None:
        """Reject new requests and abort running ones."""
        self._lifeline.close()
        for result in list(self._running.values()):
            _abort(result)

    async def end_helpers(self) -> None:
        """End the helper processes that parse grammars."""
        if self._guide is not None:
            await self._guide.trials.close()

    async def _prepare(self, request: EngineRequest) -> None:
        if self._guide is not None:
            await self._guide.trials.prepare(request)

    def forget(self) -> None:
        """Drop the references to TensorRT-LLM, which is about to end."""
        self._llm = None
        self._multi_modal.forget()

    async def health(self) -> None:
        """Return if the engine can serve now; otherwise raise `EngineUnavailable` with the reason."""
        await self._lifeline.check_alive()

    async def check(self, request: EngineRequest) -> None:
        """Raise what `generate` would raise for this request. Starts nothing."""
        self._lifeline.require()
        length = await self._length_of(request)
        await self._prepare(request)
        self._arguments(request, length)

    async def count(self, prompt: TokensPrompt) -> int:
        """The length of `prompt` in tokens."""
        self._lifeline.require()
        return await self._length_of(EngineRequest(request_id="", prompt=prompt))

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. Closing the generator, or cancelling its task, aborts the request in TensorRT-LLM."""
        self._lifeline.require()
        prompt, inputs = await self._input(request)
        await self._prepare(request)
        arguments = self._arguments(request, len(prompt))
        generation = TrtllmGeneration(self.tokenizer, request.sampling, ends=self._ends)
        try:
            result = self._llm.generate_async(inputs, **arguments)
        except (
            Exception
        ) as error:  # validation raises several kinds of exceptions, a dead executor others
            raise await self._explain(error, began=False) from error
        key = uuid.uuid4().hex
        self._running[key] = result
        finished = False
        try:
            while True:
                try:
                    with self._lifeline.wait_guard():
                        await anext(result)
                except StopAsyncIteration:
                    raise EngineError("TensorRT-LLM's output ended without a finish.") from None
                except GatewayError:
                    raise
                except (
                    Exception
                ) as error:  # workers raise several kinds of exceptions, bare ones included
                    raise await self._explain(error, began=True) from error
                # The result is one object that changes with each step, so read it at once.
                made = result.outputs[0]
                finished = made.finish_reason is not None
                output = generation.feed(
                    list(made.token_ids_diff),
                    made.logprobs_diff if request.sampling.logprobs is not None else (),
                    made.finish_reason,
                    made.stop_reason,
                )
                if key not in self._begun:
                    self._begun.add(key)
                    output.prompt_tokens = len(prompt)
                    output.cached_tokens = getattr(result, "cached_tokens", None)
                    if request.sampling.prompt_logprobs is not None:
                        output.prompt_logprobs = await threaded_if_large(
                            _TOKEN * len(prompt),
                            partial(generation.prompt_logprobs, prompt, made.prompt_logprobs or ()),
                        )
                ended = output.finish_reason is not None
                if ended and not finished:
                    # A stop string matched here; TensorRT-LLM does not know of it.
                    _abort(result)
                    finished = True
                yield output
                if ended:
                    return
        finally:
            self._running.pop(key, None)
            self._begun.discard(key)
            if not finished:
                _abort(result)

    async def _explain(self, error: Exception, *, began: bool) -> GatewayError:
        """The gateway error for `error`. Raises `EngineUnavailable` instead if the engine has died."""
        if isinstance(error, RequestError):
            return failed(error) if began else refused(error)
        if not began and isinstance(error, ValueError | TypeError):
            return refused(error)
        await self._lifeline.check_alive(f"{type(error).__name__}: {error}")
        return EngineError(f"TensorRT-LLM failed on this request: {type(error).__name__}: {error}")

    def _prompt(self, request: EngineRequest) -> list[int]:
        ids = prompt_tokens(request, vocabulary=self._vocabulary)
        self._check_length(len(ids))
        media = _media(request)
        self._multi_modal.check(ids, media)
        if media and request.sampling.prompt_logprobs is not None:
            raise Unsupported(
                "This engine gives no log probabilities of prompts with images. Leave prompt_logprobs out.",
                param="prompt_logprobs",
            )
        return ids

    async def _input(self, request: EngineRequest) -> tuple[list[int], Any]:
        """The prompt's tokens, with those of its images, and TensorRT-LLM's input. Raises `InvalidRequest`."""
        ids, media = self._prompt(request), _media(request)
        if not media:
            return ids, {"prompt_token_ids": ids}
        expanded = await self._multi_modal.expand(ids, media, request)
        self._check_length(len(expanded.prompt_token_ids))
        return list(expanded.prompt_token_ids), expanded

    async def _length_of(self, request: EngineRequest) -> int:
        """The length of the prompt in tokens, with those of its images. Raises `InvalidRequest`."""
        ids, media = self._prompt(request), _media(request)
        if not media:
            return len(ids)
        length = await self._multi_modal.length(ids, media)
        self._check_length(length)
        return length

    def _check_length(self, length: int) -> None:
        limit, why = self._length - 1, f"context is {self._length} tokens for input and output"
        step = getattr(self._llm.args, "max_num_tokens", None)
        if step and not getattr(self._llm.args, "enable_chunked_prefill", False) and step < limit:
            limit, why = step, f"max_num_tokens is {step}, without chunked prefill"
        if length > limit:
            raise InvalidRequest(
                f"The input has {length} tokens, and the model's {why}. Shorten the input.",
                param="input",
                code="context_length_exceeded",
            )

    def _arguments(self, request: EngineRequest, prompt_length: int) -> dict[str, Any]:
        """The keyword arguments of `generate_async`."""
        made: dict[str, Any] = {
            "sampling_params": self._sampling(request, prompt_length),
            "streaming": True,
        }
        adapter = self._adapter(request)
        if adapter is not None:
            made["lora_request"] = adapter
        if request.sampling.prompt_logprobs is not None:
            # Cached tokens have no log probabilities. A unique salt avoids cache hits.
            made["cache_salt"] = uuid.uuid4().hex
        elif request.prefix_salt:
            made["cache_salt"] = request.prefix_salt
        if request.priority:
            if not self._schedules_by_priority:
                raise Unsupported(
                    "The engine of this model does not schedule by priority (scheduler_config.waiting_queue_policy). Leave "
                    "priority out.",
                    param="priority",
                )
            made["priority"] = priority(request.priority)
        if request.data_parallel_rank is not None:
            made["scheduling_params"] = scheduling(request.data_parallel_rank, self._ranks)
        elif self._ranks and "conversation_params" in self._takes:
            conversation = conversation_of(request)
            if conversation is not None:
                made["conversation_params"] = conversation
        if request.trace_headers and self._traces and "trace_headers" in self._takes:
            made["trace_headers"] = request.trace_headers
        return made

    def _sampling(self, request: EngineRequest, prompt_length: int) -> Any:
        arguments = sampling_arguments(
            request.sampling,
            room=self._length - prompt_length,
            ends=self._ends,
            vocabulary=self._vocabulary,
        )
        if request.constraint is not None:
            if self._guide is None:
                raise Unsupported(
                    'This model enforces nothing: its server has guided_decoding = "none".'
                )
            guide = self._guide.constrain(arguments, request)
            if guide is not None:
                arguments["guided_decoding"] = GuidedDecodingParams(**guide)
        try:
            return SamplingParams(**arguments)
        except (ValueError, TypeError) as error:
            raise refused(error) from error

    def _adapter(self, request: EngineRequest) -> Any | None:
        if request.adapter is None:
            return None
        adapter = self._adapters.get(request.adapter)
        if adapter is None:
            raise unknown_adapter(request.adapter, self._adapters)
        return adapter


def _media(request: EngineRequest) -> Sequence[PlacedMedia]:
    return request.prompt.media if isinstance(request.prompt, TokensPrompt) else ()


def _adapters(config: TrtllmConfig) -> dict[str, Any]:
    made = {}
    for number, (name, path) in enumerate(config.lora_modules.items(), start=1):
        try:
            made[name] = LoRARequest(name, number, os.path.expanduser(path))
        except ValueError as error:
            raise ConfigurationError(
                f"TensorRT-LLM cannot use the adapter '{name}': {error}"
            ) from error
    return made


def _abort(result: Any) -> None:
    try:
        result.abort()
    except (
        Exception
    ) as error:  # an executor that has ended has nothing to abort, and raises in several ways
        logger.debug("A request could not be aborted: %r", error)
