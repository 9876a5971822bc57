"""The reranking engine: uses vLLM's pooling with cross-encoders. Imports vLLM."""

from __future__ import annotations

import dataclasses
from functools import partial
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
    InvalidRequest,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
)
from gateway.sdk.engines import ScoringOnly
from gateway_vllm.config import VllmConfig
from gateway_vllm.errors import refused
from gateway_vllm.host import Host
from gateway_vllm.pooled import PooledEngine


class VllmReranker(ScoringOnly, PooledEngine):
    """vLLM in process, for reranking. Implements `gateway.sdk.ScoringEngine`, and `Engine` without generation.

    vLLM combines the texts of a pair, by the score template of the configuration or of the model's class, or by the
    tokenizer's rule for pairs.
    """

    def __init__(
        self, host: Host, config: VllmConfig, context: EngineContext, template: str | None
    ) -> None:
        """`template` is the text of the score template."""
        llm, model = host.llm, host.llm.model_config
        super().__init__(host, config, context)
        self._template = template
        self._length: int = model.max_model_len
        self._prompts = CrossEncoderIOProcessor(
            llm.vllm_config, llm.renderer, ChatTemplateConfig(chat_template=template)
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({"rerank", "adapters"} if self.info.adapters else {"rerank"})

    @property
    def scoring(self) -> ScoringInfo:
        return ScoringInfo(max_input_tokens=self._length, truncates=True)

    def forget(self) -> None:
        """Drop the references to vLLM after it has ended."""
        self._prompts = None

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Return all scores; see `ScoringEngine.score`."""
        self._check(request)
        self._check_lengths(request)
        adapter = await self._host.adapter(request.adapter)
        found = await self._run_all(
            [partial(self._score, request, index, adapter) for index in range(len(request.pairs))]
        )
        return ScoreResult(
            scores=[score for score, _ in found], prompt_tokens=sum(length for _, length in found)
        )

    def _check_lengths(self, request: ScoreRequest) -> None:
        for name, value in (
            ("max_tokens_per_document", request.max_tokens_per_document),
            ("truncate_to", request.truncate_to),
        ):
            if value is not None and value > self._length:
                raise InvalidRequest(
                    f"{value} is more than the {self._length} tokens that the model scores at most.",
                    param=name,
                )

    async def _score(
        self, request: ScoreRequest, index: int, adapter: Any | None
    ) -> tuple[float, int]:
        """The score of one pair, and its length in tokens."""
        given = await self._input(request, index)
        output = await self._encode(
            given["prompts"],
            given["params"],
            request,
            index,
            adapter,
            param=("pairs", index),
            result="score",
        )
        score: float = ScoringOutput.from_base(output).score
        return score, len(given["prompts"]["prompt_token_ids"])

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
