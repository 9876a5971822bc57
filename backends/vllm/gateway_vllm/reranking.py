"""The reranking engine: uses vLLM's pooling with cross-encoders. Imports vLLM."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import aclosing
from typing import Any

from vllm.entrypoints.pooling.scoring.io_processor import (  # type: ignore[import-not-found,unused-ignore]
    CrossEncoderIOProcessor,
)
from vllm.entrypoints.pooling.typing import (  # type: ignore[import-not-found,unused-ignore]
    ScoringRenderParams,
)
from vllm.exceptions import VLLMClientError  # type: ignore[import-not-found,unused-ignore]
from vllm.outputs import ScoringOutput  # type: ignore[import-not-found,unused-ignore]
from vllm.pooling_params import PoolingParams  # type: ignore[import-not-found,unused-ignore]
from vllm.renderers.chat_utils import (  # type: ignore[import-not-found,unused-ignore]
    ChatTemplateConfig,
)

from gateway.sdk import (
    Capability,
    EngineContext,
    EngineError,
    InvalidRequest,
    ModelInfo,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
)
from gateway.sdk.engines import HfTokenizer, ScoringOnly
from gateway_vllm.config import VllmConfig
from gateway_vllm.errors import refused
from gateway_vllm.host import FAILURES, Host
from gateway_vllm.model_info import model_info

_AT_ONCE = 256
"""Maximum number of pairs of one request submitted to vLLM at once: more than one batch, so that vLLM is never idle."""


class VllmReranker(ScoringOnly):
    """vLLM in process, for reranking. Satisfies `gateway.protocols.ScoringEngine`, and `Engine` without generation.

    vLLM combines the texts of a pair, by the score template of the configuration or of the model's class, or by the
    tokenizer's rule for pairs.
    """

    def __init__(
        self, host: Host, config: VllmConfig, context: EngineContext, template: str | None
    ) -> None:
        """`template` is the text of the score template."""
        llm, model = host.llm, host.llm.model_config
        self._host = host
        self._tokenizer = HfTokenizer(llm.get_tokenizer())
        self._info = model_info(llm, config, context)
        self._template = template
        self._length: int = model.max_model_len
        self._prompts = CrossEncoderIOProcessor(
            llm.vllm_config, llm.renderer, ChatTemplateConfig(chat_template=template)
        )
        self._takes_priority = config.scheduling_policy == "priority"
        self._traces = llm.observability_config.otlp_traces_endpoint is not None

    @property
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return 2**31 - 1 if self._takes_priority else None

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"rerank", "adapters"} if self._info.adapters else {"rerank"})

    @property
    def tokenizer(self) -> HfTokenizer:
        return self._tokenizer

    @property
    def scoring(self) -> ScoringInfo:
        return ScoringInfo(max_input_tokens=self._length, truncates=True)

    async def end_helpers(self) -> None:
        """Does nothing: there are no helper processes."""

    def forget(self) -> None:
        """Drop the references to vLLM after it has ended."""
        self._prompts = None

    async def health(self) -> None:
        """Return if the engine can serve now; otherwise raise `EngineUnavailable` with the reason."""
        self._host.require_life()

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Return all scores. Each pair is a separate vLLM request, so that vLLM batches them."""
        self._host.require_life()
        self._check(request)
        adapter = await self._host.adapter(request.adapter)
        found: list[tuple[float, int]] = [(0.0, 0)] * len(request.pairs)
        todo = iter(range(len(request.pairs)))

        async def work() -> None:
            for index in todo:
                found[index] = await self._one(request, index, adapter)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(found))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return ScoreResult(
            scores=[score for score, _ in found], prompt_tokens=sum(length for _, length in found)
        )

    def _check(self, request: ScoreRequest) -> None:
        if request.priority and not self._takes_priority:
            raise InvalidRequest(
                "This model does not schedule by priority. Leave priority out, or have the server set "
                'scheduling_policy = "priority".',
                param="priority",
            )
        for name, value in (
            ("max_tokens_per_document", request.max_tokens_per_document),
            ("truncate_to", request.truncate_to),
        ):
            if value is not None and value > self._length:
                raise InvalidRequest(
                    f"{value} is more than the {self._length} tokens that the model scores at most.",
                    param=name,
                )

    async def _one(
        self, request: ScoreRequest, index: int, adapter: Any | None
    ) -> tuple[float, int]:
        """The score of one pair, and its length in tokens."""
        given = await self._input(request, index)
        length = len(given["prompts"]["prompt_token_ids"])
        outputs = self._host.llm.encode(
            given["prompts"],
            given["params"],
            f"{request.request_id}-{index}",
            lora_request=adapter,
            trace_headers=request.trace_headers if self._traces else None,
            priority=request.priority,
        )
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if output.finished:
                        return ScoringOutput.from_base(output.outputs).score, length
        except FAILURES as error:
            raise self._host.failure(error) from error
        except VLLMClientError as error:
            raise refused(error, param=("pairs", index)) from error
        raise EngineError("vLLM gave no score for this request. Others may succeed.")

    async def _input(self, request: ScoreRequest, index: int) -> Any:
        """vLLM's input for one pair. Raises `InvalidRequest` for one that is too long."""
        query, document = request.pairs[index]
        # One token more than fits shows that a pair is too long; no more of it is kept.
        cut = self._length + 1 if request.truncate_to is None else request.truncate_to
        tokens = dataclasses.replace(
            self._host.llm.renderer.default_cmpl_tok_params,
            truncate_prompt_tokens=self._length if cut == -1 else cut,
            truncation_side="right",
            max_total_tokens=self._length + 1,
        )
        most = request.max_tokens_per_document or 0
        try:
            given = await self._prompts.render_async(
                ScoringRenderParams(
                    data_1=query,
                    data_2=document,
                    chat_template=self._template,
                    max_tokens_per_query=0,
                    max_tokens_per_doc=0 if most >= self._length else most,
                    tok_params=tokens,
                    prompt_extras=None,
                    skip_mm_cache=False,
                    params=PoolingParams(task="classify"),
                    lora_requests=None,
                    priorities=request.priority,
                )
            )
        except (VLLMClientError, ValueError) as error:
            raise refused(error, param=("pairs", index)) from error
        if len(given["prompts"]["prompt_token_ids"]) > self._length:
            raise InvalidRequest(
                f"The query and the document have more tokens together than the {self._length} that the model scores at "
                "most. Shorten them, or have them truncated.",
                param=("pairs", index),
                code="context_length_exceeded",
            )
        return given
